"""Measure how well a model predicts a text: its perplexity, the lower the better.

python examples/perplexity.py --file README.md
"""

import argparse
import math
from pathlib import Path

import axlm
import mlx.core as mx
import mlx.nn as nn

TEXT = """It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness,
it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, it was the season of Darkness,
it was the spring of hope, it was the winter of despair."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--file", type=Path, help="a text file; without one, the beginning of a novel")
    parser.add_argument("--window", type=int, default=512, help="how many tokens the model sees at a time")
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)
    ids = tokenizer.encode(args.file.read_text(encoding="utf-8") if args.file else TEXT)

    total, count = 0.0, 0
    for start in range(0, len(ids) - 1, args.window):
        window = mx.array(ids[start : start + args.window + 1])
        # Called on token ids [1, length], a model gives scores [1, length, vocabulary] for the token after each.
        logits = model(window[None, :-1])
        losses = nn.losses.cross_entropy(logits[0].astype(mx.float32), window[1:])
        total += losses.sum().item()
        count += losses.size

    print(f"{count} tokens, perplexity {math.exp(total / count):.4g}")


if __name__ == "__main__":
    main()
