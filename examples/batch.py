"""Answer many prompts in one call.

python examples/batch.py "Name a colour." "What is the tallest mountain?"
"""

import argparse
import sys

import axlm


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--max-tokens", type=int, default=40)
    parser.add_argument(
        "prompts", nargs="*", default=["Name a colour.", "What is the tallest mountain?", "Who wrote Hamlet, and when?"]
    )
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)

    # batch_generate takes token ids.
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)
        for prompt in args.prompts
    ]
    answers = axlm.batch_generate(model, tokenizer, prompts, max_tokens=args.max_tokens)

    for prompt, text in zip(args.prompts, answers.texts, strict=True):
        print(f"{prompt}\n   {' '.join(text.split())}")
    print(f"{answers.stats.generation_tokens} tokens for {len(prompts)} prompts")
    print(f"{answers.stats.generation_tps:.1f} tokens per second", file=sys.stderr)


if __name__ == "__main__":
    main()
