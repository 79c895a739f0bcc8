"""Chat in the terminal.

The prompt cache holds what the model has already read and written, so each turn processes only the new message.

    python examples/chat.py

An empty line or Ctrl-D ends the chat.
"""

import argparse

import axlm
from axlm.models.cache import make_prompt_cache


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--max-tokens", type=int, default=256, help="the longest answer")
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)
    prompt_cache = make_prompt_cache(model)

    while True:
        try:
            question = input("> ")
        except EOFError:
            question = ""
        if not question:
            break

        # Only the new message: the ones before are in the cache.
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
        for response in axlm.stream_generate(
            model, tokenizer, prompt, max_tokens=args.max_tokens, prompt_cache=prompt_cache
        ):
            print(response.text, end="", flush=True)
        print()

    print("Bye.")


if __name__ == "__main__":
    main()
