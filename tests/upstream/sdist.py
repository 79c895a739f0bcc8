"""mlx_lm's tests: from its source distribution, as they are and with the package's name changed to ours."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

VERSION = "0.32.2"
ARCHIVE = f"mlx_lm-{VERSION}.tar.gz"
SHA256 = "1af8a92f6a141c3e2bf5b0369ac4464203a8e2189c47b9e40d3e921e5b3a1fe9"

_NAME = re.compile(r"\bmlx_lm\b")


class FetchError(Exception):
    """The tests cannot be had, or are not those of the installed release; the text is for the user."""


def check_installed() -> None:
    """Demand the release of mlx_lm that the tests belong to.

    Raises:
        FetchError: another one is installed.
    """
    installed = importlib.metadata.version("mlx-lm")
    if installed != VERSION:
        raise FetchError(f"these are mlx_lm {VERSION}'s tests, but mlx_lm {installed} is installed")


def renamed(text: str) -> str:
    """Make a Python source use axlm where it used mlx_lm: in imports, and in names of things to patch.

    Only the whole name is changed: ``mlx_lm.utils`` becomes ``axlm.utils``, ``mlx_lm_extra`` and ``mlx-lm`` stay.
    """
    return _NAME.sub("axlm", text)


def fetch(cache: Path) -> Path:
    """Download the source distribution with pip, unless it is there already, and check it.

    Args:
        cache: the folder that gets it.

    Returns:
        The archive.

    Raises:
        FetchError: pip failed, or what came is not the release that the tests were written for.
    """
    archive = cache / ARCHIVE
    if not archive.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
        options = ["--no-deps", "--no-binary", "mlx-lm", "--dest", str(cache), f"mlx-lm=={VERSION}"]
        result = subprocess.run([*command, *options], capture_output=True, text=True)
        if not archive.is_file():
            raise FetchError(f"pip did not fetch {ARCHIVE}:\n{(result.stderr or result.stdout).strip()}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != SHA256:
        archive.unlink()
        raise FetchError(f"{ARCHIVE} has the SHA-256 {found}, want {SHA256}; it was deleted")
    return archive


def unpack(archive: Path, folder: Path, *, rename: bool) -> list[str]:
    """Write the archive's tests into a folder, anew.

    Args:
        archive: from :func:`fetch`.
        folder: is emptied first.
        rename: change mlx_lm to axlm in them.

    Returns:
        The names of the test files, sorted.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = []
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            path = PurePosixPath(member.name)
            if not member.isfile() or path.parts[1:-1] != ("tests",) or path.suffix != ".py":
                continue
            content = tar.extractfile(member)
            assert content is not None, member.name
            text = content.read().decode("utf-8")
            (folder / path.name).write_text(renamed(text) if rename else text, encoding="utf-8")
            if path.name.startswith("test_"):
                names.append(path.name)
    return sorted(names)


def chosen(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """The test files to run, by name with or without ``.py``.

    Raises:
        FetchError: the release has no such file.
    """
    files = [name if name.endswith(".py") else f"{name}.py" for name in wanted]
    if missing := [name for name in files if name not in names]:
        raise FetchError(f"mlx_lm {VERSION} has no {', '.join(missing)}; it has {', '.join(names)}")
    return files
