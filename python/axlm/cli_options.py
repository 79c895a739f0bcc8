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
