"""Get an answer as JSON that is always valid.

The script writes the braces and the keys, the model fills in the values, and a logits processor lets it write nothing
but the values that are allowed.

    python examples/json_output.py --review "Too loud, but the battery lasts for days."
"""

import argparse
import json

import axlm
import mlx.core as mx

FIELDS = {
    "sentiment": ["positive", "negative", "mixed"],
    "stars": ["1", "2", "3", "4", "5"],
    "would_buy_again": ["yes", "no", "maybe"],
}


class OneOf:
    """Lets the model write one of several texts, and nothing else."""

    def __init__(self, choices: list[list[int]]) -> None:
        self.choices = choices
        self.prompt_length = None

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        """Take the ids so far, the prompt included, and scores [1, vocabulary]; return the new scores."""
        if self.prompt_length is None:  # the first call: nothing is written yet
            self.prompt_length = len(tokens)
        written = tokens[self.prompt_length :].tolist()
        n = len(written)
        allowed = [ids[n] for ids in self.choices if ids[:n] == written and len(ids) > n]
        if not allowed:  # one of them is complete
            return logits
        scores = mx.full(logits.shape, -mx.inf, logits.dtype)
        scores[:, mx.array(allowed)] = logits[:, mx.array(allowed)]
        return scores


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--review", default="Too loud, but the battery lasts for days.")
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)

    text = f"Review: {args.review}\nSummary as JSON:\n{{"
    answer = {}
    for field, values in FIELDS.items():
        text += f'"{field}": "'
        # The closing quote is part of each choice, so that none is the beginning of another.
        choices = {value: tokenizer.encode(value + '"', add_special_tokens=False) for value in values}
        processors = [OneOf(list(choices.values()))]
        written = []
        for response in axlm.stream_generate(model, tokenizer, text, logits_processors=processors):
            written.append(response.token)
            if written in choices.values():
                break
        answer[field] = next(value for value, ids in choices.items() if ids == written)
        text += f'{answer[field]}", '

    print(json.dumps(answer, indent=2))


if __name__ == "__main__":
    main()
