"""Ask several questions about one document, which is processed only once.

python examples/prompt_cache.py --document README.md "What is it?" "How is it installed?"
"""

import argparse
from pathlib import Path

import axlm
import mlx.core as mx
from axlm.generate import generate_step
from axlm.models.cache import make_prompt_cache, trim_prompt_cache

DOCUMENT = """The Eddystone Lighthouse stands on dangerous rocks south of Plymouth. The first tower, of wood, was lit in
1698 and lost in a storm five years later. Smeaton's tower of 1759 was of interlocking stone."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--document", type=Path, help="a text file; without one, a text about a lighthouse")
    parser.add_argument("--max-tokens", type=int, default=40)
    parser.add_argument("questions", nargs="*", default=["When was it first lit?", "What was the tower made of?"])
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)
    document = args.document.read_text(encoding="utf-8") if args.document else DOCUMENT

    # Without a token to generate, the prompt is only processed: its state is then in the cache.
    ids = tokenizer.encode(f"Text:\n{document}\n")
    prompt_cache = make_prompt_cache(model)
    for _ in generate_step(mx.array(ids), model, max_tokens=0, prompt_cache=prompt_cache):
        pass
    print(f"The document has {len(ids)} tokens.")

    for question in args.questions:
        prompt = tokenizer.encode(f"Question: {question}\nAnswer:", add_special_tokens=False)
        text = ""
        for response in axlm.stream_generate(
            model, tokenizer, prompt, max_tokens=args.max_tokens, prompt_cache=prompt_cache
        ):
            text += response.text
        print(f"{question}\n   {' '.join(text.split())}")

        # The cache now holds the question and the answer too. Take them out again, for the next question.
        trim_prompt_cache(prompt_cache, len(prompt) + response.generation_tokens)


if __name__ == "__main__":
    main()
