"""What the commands can tell of their options before they load a model, which may take a minute."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .cli_options import UsageError
from .ngram import ngram_options

_LEAST = {
    "batch_size": 1,
    "kv_bytes": 1,
    "limit": 1,
    "max_kv_size": 1,
    "num_shots": 0,
    "per_class": 1,
    "prefill_step_size": 1,
    "seed": 0,
}
"""The least value of an option, by its name in the namespace."""

_NO_LIMIT = {"max_tokens", "num_samples"}
"""Counts of which -1 means that there is no limit; 0 leaves nothing to do."""

_KV_BITS = (2, 3, 4, 5, 6, 8)
_KV_GROUP_SIZES = (32, 64, 128)


def check(args: argparse.Namespace) -> None:
    """Refuse what can be known to be wrong now.

    Args:
        args: a command's options; those that it does not have are not looked at.

    Raises:
        UsageError: the first that is wrong.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    for problem in (*_counts(given), *_sampling(given), *_caches(given), *_speculation(given), *_files(given)):
        raise UsageError(problem)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _counts(given: dict[str, Any]) -> Iterator[str]:
    for name, least in _LEAST.items():
        if isinstance(value := given.get(name), int) and value < least:
            yield f"{_option(name)} must be at least {least}, not {value}"
    for name in _NO_LIMIT:
        if (value := given.get(name)) is not None and (value == 0 or value < -1):
            yield f"{_option(name)} must be at least 1, or -1 for no limit, not {value}"
    if not 0 <= given.get("delay", 0) < math.inf:
        yield f"--delay must be a number of seconds, not {given['delay']}"


def _sampling(given: dict[str, Any]) -> Iterator[str]:
    """What mlx_lm's samplers refuse when they draw. Without a temperature nothing is drawn, and the rest is ignored."""
    temp = given.get("temp", 0)
    if not math.isfinite(temp):
        yield f"--temp must be a finite number, not {temp}"
    if temp == 0:
        return
    ranges = {"min_p": 1.0}
    if not given.get("xtc_probability", 0) <= 0:  # it is off otherwise
        ranges |= {"xtc_probability": 1.0, "xtc_threshold": 0.5}
    for name, most in ranges.items():
        if not 0 <= given.get(name, 0) <= most:
            yield f"{_option(name)} must lie in 0 … {most:g}, not {given[name]}"
    if math.isnan(given.get("top_p", 1)):
        yield "--top-p must be a number"
    if given.get("min_p", 0) and given.get("min_tokens_to_keep", 1) < 1:
        yield f"--min-tokens-to-keep must be at least 1, not {given['min_tokens_to_keep']}"


def _caches(given: dict[str, Any]) -> Iterator[str]:
    if (bits := given.get("kv_bits")) is None:
        return
    if bits not in _KV_BITS:
        yield f"--kv-bits must be one of {', '.join(map(str, _KV_BITS))}, not {bits}"
    if (start := given.get("quantized_kv_start", 0)) < 0:
        yield f"--quantized-kv-start must be at least 0, not {start}"
    if (size := given.get("kv_group_size", 64)) not in _KV_GROUP_SIZES:
        yield f"--kv-group-size must be one of {', '.join(map(str, _KV_GROUP_SIZES))}, not {size}"


def _speculation(given: dict[str, Any]) -> Iterator[str]:
    if "draft_model" in given and given.get("num_draft_tokens", 0) < 0:
        yield f"--num-draft-tokens must be at least 0, not {given['num_draft_tokens']}"
    try:
        ngram_options(given.get("ngram"))
    except (TypeError, ValueError) as error:
        yield f"--ngram: {str(error).removeprefix('ngram: ')}"


def _files(given: dict[str, Any]) -> Iterator[str]:
    if (folder := given.get("adapter_path")) is not None and not os.path.isdir(folder):
        yield f"--adapter-path: there is no folder {folder}"
    for file in given.get("image", ()):
        if not os.path.isfile(file):
            yield f"--image: there is no file {file}"
    for name in ("json", "plot"):  # written when the measuring is done
        file = given.get(name)
        if isinstance(file, (str, Path)) and str(file) != "-" and not Path(file).absolute().parent.is_dir():
            yield f"{_option(name)}: there is no folder {Path(file).absolute().parent}"
