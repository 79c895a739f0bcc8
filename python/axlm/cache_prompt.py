"""Process a prompt once and save the model's state, for axlm generate --prompt-cache-file."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from ._delegate import delegate, run_as
from .cli_options import add_model, add_quantized_cache
from .generate import DEFAULT_MODEL, DEFAULT_QUANTIZED_KV_START, generate_step
from .utils import load

__getattr__, __dir__ = delegate(__name__, "cache_prompt")

__all__ = ["DEFAULT_QUANTIZED_KV_START"]

CONVERTED = "mlx_model"
"""The folder that axlm convert writes by default, and that is taken here if it is there and no other is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of mlx_lm.cache_prompt."""
    add = parser.add_argument
    add_model(parser)
    add("--eos-token", metavar="TOKEN", help="the tokenizer's end token, in place of its own")
    add("--max-kv-size", type=int, help="the most tokens that attention remembers")
    add(
        "--prompt-cache-file",
        metavar="FILE",
        required=True,
        help="the file to write, *.safetensors or, compressed, *.safetensors.zst",
    )
    add("--prompt", required=True, help="the user's message; - reads it from stdin")
    add_quantized_cache(parser)


def run(args: argparse.Namespace) -> int:
    """Process the prompt and write the file; return the exit code."""
    from . import _bridge
    from .models._cache_file import check_target
    from .models.cache import make_prompt_cache, save_prompt_cache

    check_target(args.prompt_cache_file)  # a long prompt would be processed for nothing
    name = args.model or (CONVERTED if Path(CONVERTED).is_dir() else DEFAULT_MODEL)
    tokenizer_config: dict[str, Any] = {"trust_remote_code": args.trust_remote_code}
    if args.eos_token is not None:
        tokenizer_config["eos_token"] = args.eos_token
    model, tokenizer = load(
        name,
        adapter_path=args.adapter_path,
        tokenizer_config=tokenizer_config,
        trust_remote_code=args.trust_remote_code,
    )
    text = sys.stdin.read() if args.prompt == "-" else args.prompt
    if tokenizer.has_chat_template:
        # Up to the end of the message, not of the user's turn: axlm generate -p goes on there.
        message = [{"role": "user", "content": text}]
        prompt = tokenizer.apply_chat_template(message, add_generation_prompt=False, continue_final_message=True)
    else:
        prompt = tokenizer.encode(text)
    cache = make_prompt_cache(model, args.max_kv_size)
    report = _Report()
    for _ in generate_step(
        prompt,
        model,
        max_tokens=0,
        prompt_cache=cache,
        kv_bits=args.kv_bits,
        kv_group_size=args.kv_group_size,
        quantized_kv_start=args.quantized_kv_start,
        prompt_progress_callback=report,
    ):
        pass
    print()
    print(f"Peak memory: {_bridge.peak_memory() / 1e9:.3f} GB")
    metadata = {"model": name, "tokenizer_config": json.dumps(tokenizer_config)}
    save_prompt_cache(args.prompt_cache_file, cache, metadata)
    print(f"Saved {args.prompt_cache_file}")
    return 0


class _Report:
    """Shows how far the prompt is processed, on one line."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def __call__(self, done: int, total: int) -> None:
        speed = done / max(time.perf_counter() - self._started, 1e-9)
        print(f"\rProcessed {done} of {total} tokens ({speed:.2f} tok/s)\033[K", end="", flush=True)


if __name__ == "__main__":
    run_as("cache_prompt")
