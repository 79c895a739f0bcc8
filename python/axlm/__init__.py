"""Local language models on MLX, faster, with the Python API of ``mlx_lm``.

    from axlm import load, generate

    model, tokenizer = load("smollm2-135m")
    print(generate(model, tokenizer, prompt="Hello"))

Importing this package is cheap: MLX, numpy, transformers and the Go core are loaded by the first :func:`load`.
"""

import contextlib

# These modules import only the standard library. Their names are bound here and now, because ``generate`` is both a
# module and a function: ``from axlm import generate`` must give the function whichever was imported first.
from . import _bridge
from ._version import __version__
from .generate import GenerationResponse, batch_generate, generate, generate_step, stream_generate
from .ngram import NgramConfig
from .utils import load

# A fast BLAS must be loaded before mlx.core is, which a script may import next. What is wrong is told at the first use.
with contextlib.suppress(ImportError):
    _bridge.choose_blas()

__all__ = [
    "GenerationResponse",
    "NgramConfig",
    "__version__",
    "batch_generate",
    "generate",
    "generate_step",
    "load",
    "stream_generate",
]
