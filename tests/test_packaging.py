"""What `pip install` leaves behind: small, complete, for this Python, without a trace of the machine that built it."""

from __future__ import annotations

import importlib.metadata
import sys
import sysconfig
import zlib
from pathlib import Path

import axlm

PACKAGE = Path(axlm.__file__).parent
NATIVE = PACKAGE / "_native"
LIBRARY = NATIVE / ("libaxlmmlx.dylib" if sys.platform == "darwin" else "libaxlmmlx.so")
EXTENSION = NATIVE / f"_axlmgo{sysconfig.get_config_var('EXT_SUFFIX')}"


def test_the_package_is_complete_and_small() -> None:
    files = [file for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    names = {file.relative_to(PACKAGE).as_posix() for file in files}
    assert {"py.typed", "_native/axlmgo.py", "_native/go.py", "_native/mlx_version"} <= names
    assert {LIBRARY, EXTENSION} <= set(files)
    assert sum(len(zlib.compress(file.read_bytes())) for file in files) <= 5_000_000


def test_the_wheel_is_for_this_python() -> None:
    wheel = importlib.metadata.distribution("axlm").read_text("WHEEL")
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"Tag: {version}-{version}-{'macosx' if sys.platform == 'darwin' else 'linux'}" in wheel


def test_binaries_name_no_folder_of_the_machine() -> None:
    folders = [sysconfig.get_path("include"), str(Path(__file__).resolve().parents[1])]
    for binary in (LIBRARY, EXTENSION):
        content = binary.read_bytes()
        assert [folder for folder in folders if folder.encode() in content] == []
        assert b"libpython" not in content


def test_the_shim_looks_for_mlx_beside_itself() -> None:
    origin = b"@loader_path" if sys.platform == "darwin" else b"$ORIGIN"
    assert origin + b"/../../mlx/lib" in LIBRARY.read_bytes()
