"""Show how sure the model was of each token, and what else it considered.

python examples/logprobs.py --prompt "The capital of France is"
"""

import argparse

import axlm
import mlx.core as mx


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--prompt", default="The capital of France is")
    parser.add_argument("--max-tokens", type=int, default=12)
    parser.add_argument("--top", type=int, default=3, help="how many alternatives to show")
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)

    for response in axlm.stream_generate(model, tokenizer, args.prompt, max_tokens=args.max_tokens):
        # The natural logarithm of every token's probability, as an array of the vocabulary's length.
        logprobs = response.logprobs.astype(mx.float32)
        best = mx.argsort(-logprobs)[: args.top].tolist()
        words = [f"{tokenizer.decode([token])!r} {mx.exp(logprobs[token]).item():.0%}" for token in best]
        print(f"{tokenizer.decode([response.token])!r:16}", " ".join(words))


if __name__ == "__main__":
    main()
