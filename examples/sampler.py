"""Choose tokens your own way: a sampler is any function from log probabilities to a token.

This one is cool where the model is sure and warm where it hesitates: the temperature follows the entropy.

    python examples/sampler.py --seed 7
"""

import argparse

import axlm
import mlx.core as mx


def warm_when_unsure(logprobs: mx.array) -> mx.array:
    """Take log probabilities of shape [1, vocabulary] and return the chosen token's id, of shape [1]."""
    entropy = -mx.sum(mx.exp(logprobs) * logprobs, axis=-1, keepdims=True)
    temperature = mx.clip(entropy / 4, 0.1, 1.2)
    return mx.random.categorical(logprobs / temperature)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)

    # Random numbers come from MLX: the same seed gives the same text.
    mx.random.seed(args.seed)
    text = axlm.generate(model, tokenizer, args.prompt, max_tokens=args.max_tokens, sampler=warm_when_unsure)
    print(text)

    # For the usual ways (temperature, top-p, top-k, min-p, …) take axlm.sample_utils.make_sampler, which is faster.


if __name__ == "__main__":
    main()
