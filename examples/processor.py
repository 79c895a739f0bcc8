"""Forbid tokens: a logits processor changes the model's scores before a token is chosen.

This one bans every token with a certain letter in it: a text without any "e".

    python examples/processor.py --letter e
"""

import argparse

import axlm
import mlx.core as mx


class Without:
    """Bans the tokens whose text contains a letter."""

    def __init__(self, letter: str, tokenizer) -> None:
        ids = tokenizer.get_vocab().values()
        self.banned = [token for token in ids if letter in tokenizer.decode([token]).lower()]

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Take the ids of the text so far, the prompt included, and scores [1, vocabulary]; return the new scores."""
        logits[:, mx.array(self.banned)] = -mx.inf
        return logits


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--prompt", default="My dog and I")
    parser.add_argument("--letter", default="e")
    parser.add_argument("--max-tokens", type=int, default=60)
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)
    processors = [Without(args.letter, tokenizer)]
    text = axlm.generate(model, tokenizer, args.prompt, max_tokens=args.max_tokens, logits_processors=processors)
    print(text)

    # For biases and penalties take axlm.sample_utils.make_logits_processors, which is faster.


if __name__ == "__main__":
    main()
