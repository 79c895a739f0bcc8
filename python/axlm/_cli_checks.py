"""What can be told of a command's options before a model is loaded, which may take minutes."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path

from .cli_options import UsageError
from .ngram import ngram_options

_LEAST = {
    "prefill_step_size": 1,
    "max_kv_size": 1,
    "num_draft_tokens": 0,
    "quantized_kv_start": 0,
    "batch_size": 1,
    "num_shots": 0,
    "limit": 1,
    "delay": 0,
}
"""The least values of options, wherever they occur."""


def check(command: str, args: argparse.Namespace) -> None:
    """Refuse values that no model can make right.

    Args:
        command: the subcommand.
        args: its options; those that it does not have are not looked for.

    Raises:
        UsageError: a value; the text names the option.
        FileNotFoundError: a file or folder that is to be read, or the folder of one to be written, is missing.
    """
    for problem in (*_counts(args), *_quantisation(args), *_sampling(args)):
        raise UsageError(problem)
    try:
        ngram_options(getattr(args, "ngram", True))
    except (TypeError, ValueError) as error:
        raise UsageError(f"--{error}") from None
    _files(command, args)


def _counts(args: argparse.Namespace) -> Iterator[str]:
    for name, least in _LEAST.items():
        value = getattr(args, name, None)
        if value is not None and not value >= least:
            yield f"{_option(name)} must be at least {least}, not {value}"
    most = getattr(args, "max_tokens", None)
    if most is not None and (most == 0 or most < -1):
        yield f"--max-tokens must be at least 1, or -1 for no limit, not {most}"


def _quantisation(args: argparse.Namespace) -> Iterator[str]:
    if getattr(args, "kv_bits", None) is None:
        return
    for name, values in (("kv_bits", (2, 3, 4, 5, 6, 8)), ("kv_group_size", (32, 64, 128))):
        if (value := getattr(args, name)) not in values:
            yield f"{_option(name)} must be one of {', '.join(map(str, values))}, not {value}"


def _sampling(args: argparse.Namespace) -> Iterator[str]:
    temperature = getattr(args, "temp", 0.0)
    if not math.isfinite(temperature):
        yield f"--temp must be a finite number, not {temperature}"
    if temperature == 0:  # the others have no effect then
        return
    ranges = {"min_p": (0, 1), "xtc_probability": (-math.inf, 1)}
    if getattr(args, "xtc_probability", 0) > 0:
        ranges["xtc_threshold"] = (0, 0.5)
    for name, (least, most) in ranges.items():
        value = getattr(args, name, None)
        if value is not None and not least <= value <= most:
            span = f"at most {most}" if least == -math.inf else f"within [{least}, {most}]"
            yield f"{_option(name)} must be {span}, not {value}"
    if getattr(args, "min_p", 0) and args.min_tokens_to_keep < 1:
        yield f"--min-tokens-to-keep must be at least 1, not {args.min_tokens_to_keep}"


def _files(command: str, args: argparse.Namespace) -> None:
    written = {"cache_prompt": ("prompt_cache_file",), "benchmark": ("plot", "json")}.get(command, ())
    for name in ("adapter_path", "image", "prompt_cache_file", "plot", "json"):
        value = getattr(args, name, None)
        for file in value if isinstance(value, (list, tuple)) else [value]:
            if file is None or file == "-":
                continue
            if name in written:
                if not (folder := Path(file).parent).is_dir():
                    raise missing(f"{_option(name)}: there is no folder {folder}", folder)
            elif not Path(file).exists():
                raise missing(f"{_option(name)}: {file} does not exist", file)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
