"""Measure speed: the time until the first token, and tokens per second after it.

python examples/benchmark.py --runs 5
"""

import argparse
import statistics
import sys

import axlm


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--prompt", default="List the planets of the solar system, each with one sentence.")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()

    model, tokenizer = axlm.load(args.model)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": args.prompt}], add_generation_prompt=True)

    # The first run is slower: memory is allocated, kernels are compiled. It is not counted.
    axlm.generate(model, tokenizer, prompt, max_tokens=8)

    speeds = []
    for run in range(args.runs):
        *_, last = axlm.stream_generate(model, tokenizer, prompt, max_tokens=args.max_tokens)
        speeds.append(last.generation_tps)
        first = last.prompt_tokens / last.prompt_tps  # seconds
        print(f"run {run + 1}: {1000 * first:.0f} ms to the first token, then {speeds[-1]:.1f}/s", file=sys.stderr)

    print(f"{args.runs} runs of {last.generation_tokens} tokens after a prompt of {last.prompt_tokens}")
    print(f"median: {statistics.median(speeds):.1f} tokens per second", file=sys.stderr)
    print(f"peak memory: {last.peak_memory:.2f} GB", file=sys.stderr)


if __name__ == "__main__":
    main()
