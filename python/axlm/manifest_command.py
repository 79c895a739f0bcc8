"""Describe a model folder in model-manifest.json, or check the one that it has."""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("folder", metavar="DIR", help="a model folder")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if there is no current one")
    parser.add_argument("--json", action="store_true", help="print the manifest itself")


def run(args: argparse.Namespace) -> int:
    """Check the folder's manifest, or write one.

    Returns:
        0; with ``--check`` 1 if there is none, or it is of an earlier state of the folder.

    Raises:
        ValueError: the manifest says what is not so, or the folder's files are broken.
        FileNotFoundError: the folder, its config or a weight file is missing.
    """
    from . import _bridge

    result = _bridge.manifest(args.folder, write=not args.check)
    if args.json:
        print(json.dumps(result["manifest"], ensure_ascii=False, indent=1))
    else:
        print(_describe(result, args.check))
    return 1 if args.check and result["note"] else 0


def _describe(result: dict[str, Any], check: bool) -> str:
    manifest = result["manifest"]
    size = sum(file["size"] for file in manifest["files"])
    tensors, files = len(manifest["tensors"]), len(manifest["files"])
    what = f"{manifest['family']}, {tensors} tensors in {files} files, {size / 1e6:.1f} MB"
    if not result["note"]:
        return f"{result['file']} is true: {what}"
    if check:
        return f"{result['note']}: {what}"
    return f"{result['note']}: wrote it: {what}"
