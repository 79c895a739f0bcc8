"""What to type to install what is missing. No index has axlm itself, so its extras are named by what is in them."""

from __future__ import annotations

import contextlib
import importlib.metadata
import operator
import re
import sys

_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+(?:\[[\w,.-]+\])?)\s*(?P<versions>[^;]*)")
_PYTHON = re.compile(r"python_version (>=|<) ['\"](\d+)\.(\d+)['\"]")
_COMPARE = {">=": operator.ge, "<": operator.lt}


def command(*, extra: str | None = None, package: str | None = None) -> str:
    """The pip command that installs requirements of axlm's, in the versions that this axlm wants.

    Args:
        extra: an extra of axlm's, for all that it brings.
        package: one package among axlm's requirements.

    Returns:
        For example ``pip install "mlx-cpu==0.32.4"``.
    """
    wanted: list[str] = []
    requirements: list[str] = []
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # the sources, not installed
        requirements = importlib.metadata.requires("axlm") or []
    for requirement in requirements:
        text, _, marker = requirement.partition(";")
        found = _REQUIREMENT.match(text.strip())
        of = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
        if found is None or (of[1] if of else None) != extra or package not in (None, found["name"]):
            continue
        if any(not _COMPARE[sign](sys.version_info, (int(a), int(b))) for sign, a, b in _PYTHON.findall(marker)):
            continue
        words = found["name"] + found["versions"].strip()
        if words not in wanted:
            wanted.append(words)
    if not wanted:
        return (
            f"install axlm from its wheel or its source folder, with [{extra}]" if extra else f"pip install {package}"
        )
    return " ".join(["pip install", *(f'"{words}"' for words in wanted)])


def backend() -> str:
    """The commands that install MLX's backend on Linux."""
    return f"{command(extra='cpu')}, or {command(extra='cuda13')} for an NVIDIA GPU with CUDA 13"
