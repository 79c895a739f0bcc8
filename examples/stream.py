"""Print a text while it is being written.

python examples/stream.py --prompt "Tell me a story about a lighthouse."
"""

import argparse
import sys

import axlm


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--prompt", default="Tell me a story about a lighthouse.")
    parser.add_argument("--max-tokens", type=int, default=200)
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)

    # Models that were trained to chat expect the question in their own form: the chat template brings it there.
    messages = [{"role": "user", "content": args.prompt}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)

    # Each response is one token. Its text can be empty (half an emoji, say) and then comes with a later response.
    for response in axlm.stream_generate(model, tokenizer, prompt, max_tokens=args.max_tokens):
        print(response.text, end="", flush=True)
    print()

    # The last response knows how it went.
    print(f"{response.generation_tokens} tokens, ended by {response.finish_reason}")
    print(f"{response.generation_tps:.1f} tokens per second", file=sys.stderr)


if __name__ == "__main__":
    main()
