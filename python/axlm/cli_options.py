"""What the subcommands of ``axlm`` share."""

from __future__ import annotations

import argparse
import json
from typing import Any


class UsageError(Exception):
    """The command line asks for something that cannot be; the exit code is 2."""


def json_object(option: str, text: str) -> dict[str, Any]:
    """Read an option's value.

    Raises:
        UsageError: it is not a JSON object.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UsageError(f"{option} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object, not {text}")
    return value


def ngram(text: str) -> dict[str, Any] | bool:
    """Read the value of ``--ngram``: true, false, or a JSON object of :class:`axlm.NgramConfig`'s fields.

    Raises:
        argparse.ArgumentTypeError: it is none of them.
    """
    if text.lower() in ("true", "t", "false", "f"):
        return text.lower().startswith("t")
    try:
        return json_object("--ngram", text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(f"neither T nor F, and {error}") from None


def add_model(parser: argparse.ArgumentParser) -> None:
    """Add what says which model is loaded, and how."""
    add = parser.add_argument
    add("--model", help="a model folder or Hugging Face repository (default: smollm2-135m, where it is installed)")
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the tokenizer or model")
    add("--adapter-path", metavar="DIR", help="a folder of adapters that mlx_lm.lora trained")


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Add the sampling options that mlx_lm's commands share."""
    add = parser.add_argument
    add("--temp", type=float, default=0.0, help="sampling temperature; 0 takes the likeliest token (default: 0)")
    add("--top-p", type=float, default=1.0, help="sample from the likeliest tokens that sum to this probability")
    add("--xtc-probability", type=float, default=0.0, help="how often XTC drops the likeliest tokens")
    add("--xtc-threshold", type=float, default=0.1, help="how likely the tokens are that XTC drops (default: 0.1)")


def add_ngram(parser: argparse.ArgumentParser) -> None:
    """Add the option for speculation."""
    parser.add_argument(
        "--ngram",
        type=ngram,
        default=True,
        metavar="BOOL|JSON",
        help="n-gram speculation, or its settings (default: T)",
    )


def add_memory(parser: argparse.ArgumentParser) -> None:
    """Add the option that bounds memory."""
    parser.add_argument(
        "--kv-bytes",
        type=int,
        metavar="N",
        help="what the key-value caches may take in all (default: what the device has room for beside the weights)",
    )


def add_quantized_cache(parser: argparse.ArgumentParser) -> None:
    """Add the options for a quantised key-value cache."""
    add = parser.add_argument
    add("--kv-bits", type=int, help="bits per value of a quantised key-value cache; without it none is quantised")
    add("--kv-group-size", type=int, default=64, help="values that share a scale there (default: 64)")
    add("--quantized-kv-start", type=int, default=5000, help="tokens from which on it is quantised (default: 5000)")
