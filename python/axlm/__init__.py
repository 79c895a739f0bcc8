"""Local language models on MLX, faster, with the Python API of ``mlx_lm``.

    from axlm import load, generate

    model, tokenizer = load("smollm2-135m")
    print(generate(model, tokenizer, prompt="Hello"))

Importing this package is cheap: MLX, numpy, transformers and the Go core are loaded by the first :func:`load`.
"""

import contextlib
import importlib
import pkgutil
import sys
import warnings
from typing import Any

# These modules import only the standard library. Their names are bound here and now, because ``generate`` and
# ``convert`` are both modules and functions: ``from axlm import generate`` must give the function whichever was
# imported first.
from . import _bridge
from ._version import __version__
from .convert import convert
from .generate import GenerationResponse, batch_generate, generate, generate_step, stream_generate
from .model import Model
from .ngram import NgramConfig
from .utils import load

if getattr(sys, "argv", [])[:1] == ["-m"]:  # python -m axlm.generate: that it is imported already does no harm
    warnings.filterwarnings("ignore", "'axlm.* found in sys.modules", RuntimeWarning)

# A fast BLAS must be loaded before mlx.core is, which a script may import next. What is wrong is told at the first use.
with contextlib.suppress(ImportError):
    _bridge.choose_blas()

__all__ = [
    "GenerationResponse",
    "Model",
    "NgramConfig",
    "__version__",
    "batch_generate",
    "convert",
    "generate",
    "generate_step",
    "load",
    "stream_generate",
]


def __getattr__(name: str) -> Any:
    """Import a submodule when it is first asked for: ``import axlm`` is enough for ``axlm.models.cache``."""
    if not name.startswith("_") and any(module.name == name for module in pkgutil.iter_modules(__path__)):
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
