"""Which BLAS the CPU backend of MLX uses on Linux, and getting a fast one in its place.

MLX's Linux wheel brings the reference BLAS, whose matrix products are many times slower than OpenBLAS's; only dense
weights go through it, quantised ones do not. A library that is in the process's global scope when libmlx is loaded wins
over the wheel's. So a system OpenBLAS must be loaded first, and not at all once mlx.core is imported.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

SETTING = "AXLM_BLAS"
"""Environment variable: ``reference`` keeps the wheel's own BLAS; a path names the library to load instead of the
system's OpenBLAS."""

_SYSTEM_NAMES = ("libopenblas.so.0", "libopenblasp.so.0")  # most distributions; Fedora's threaded build
_INSTALL = "have OpenBLAS installed (Debian, Ubuntu: apt install libopenblas0-pthread)"


class _Choice(NamedTuple):
    name: str
    library: ctypes.CDLL | None = None
    detail: str | None = None
    advice: str | None = None


_choice: _Choice | None = None


def choose(mlx: Path) -> None:
    """Load OpenBLAS if it is wanted, present and not too late. Only the first call does anything.

    Args:
        mlx: the mlx package's folder.

    Raises:
        ImportError: the library that AXLM_BLAS names cannot be used.
    """
    global _choice
    if _choice is None:
        _choice = _choose(mlx)


def _choose(mlx: Path) -> _Choice:
    if sys.platform == "darwin":
        return _Choice("Accelerate")
    if not any(mlx.parent.glob("mlx_cpu*")):
        return _Choice("none", detail="MLX computes on the GPU")
    setting = os.environ.get(SETTING, "")
    if setting == "reference":
        return _Choice("reference")
    if _is_openblas(present := ctypes.CDLL(None)):  # LD_PRELOAD, or somebody else had the same idea
        return _Choice("OpenBLAS", present)
    if "mlx.core" in sys.modules:
        return _Choice("reference", advice=f"import axlm before mlx.core, and {_INSTALL}")
    for name in [setting] if setting else _SYSTEM_NAMES:
        try:
            library = ctypes.CDLL(name, ctypes.RTLD_GLOBAL)
        except OSError as error:
            if setting:
                raise ImportError(f"{SETTING}={setting}: {error}") from None
            continue
        return _Choice("OpenBLAS" if _is_openblas(library) else Path(name).name, library)
    return _Choice("reference", advice=_INSTALL)


def _is_openblas(library: ctypes.CDLL) -> bool:
    return hasattr(library, "openblas_get_config") and hasattr(library, "cblas_sgemm")


def info() -> dict[str, Any]:
    """Tell which BLAS is in use.

    Returns:
        ``name``: OpenBLAS, reference, Accelerate, none, …; None before anything was loaded. ``detail``: the library's
        own description of itself, or None. ``advice``: how to get a faster one, or None if that is not needed.
    """
    if _choice is None:
        return {"name": None, "detail": None, "advice": None}
    detail = _choice.detail
    if _choice.library is not None and _is_openblas(_choice.library):
        describe = _choice.library.openblas_get_config
        describe.restype = ctypes.c_char_p
        detail = describe().decode(errors="replace").strip()
    return {"name": _choice.name, "detail": detail, "advice": _choice.advice}
