"""Models that the core does not run: mlx_lm itself loads them, and generates with them.

So are modules that a user made or loaded with mlx_lm. Calls and results are those of the core's models; n-gram
speculation, which only makes a text come sooner, is left out.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ._random_state import checked_seed, seeded
from ._request import prompt_ids
from .model import Model
from .ngram import ngram_options

if TYPE_CHECKING:
    import mlx.core as mx
    import mlx.nn as nn

    from .generate import GenerationResponse

R = TypeVar("R")


def serves(model: Any, draft_model: Any = None) -> bool:
    """Tell whether mlx_lm, and not the core, generates with ``model``.

    Raises:
        TypeError: neither can, or mlx_lm would, but not with this draft model, which the core runs.
    """
    if isinstance(model, Model):
        return False
    if not callable(model):
        raise TypeError(f"the model must come from axlm.load or be an MLX module, not be a {type(model).__name__}")
    if isinstance(draft_model, Model):
        raise TypeError(
            f"draft_model: mlx_lm runs the model, a {type(model).__name__}, but not its draft model, which is the "
            "core's; load both with mlx_lm, or with axlm two that the core runs"
        )
    return True


def load_model(
    folder: Path,
    reason: Exception | str,
    stacklevel: int,
    trust_remote_code: bool,
    adapter_path: str | os.PathLike[str] | None = None,
    **options: Any,
) -> tuple[nn.Module, dict[str, Any]]:
    """Load a model folder with mlx_lm, and warn that it is no model of the core's.

    Args:
        folder: the model folder.
        reason: why the core does not run it.
        stacklevel: of the warning, seen from here.
        trust_remote_code: allow the model's own Python code.
        adapter_path: a folder that mlx_lm's tuner wrote.
        options: further arguments of mlx_lm's ``load_model``.

    Returns:
        (module, configuration).

    Raises:
        ValueError: mlx_lm does not have the family either, the model's own code is not allowed, …
    """
    from mlx_lm.utils import load_adapters, load_config, load_model

    config = load_config(folder)
    family = config.get("model_type")
    if code := config.get("model_file"):
        if not trust_remote_code:
            raise ValueError(f"{folder} wants its own code {code!r} to be run; trust_remote_code=True would allow that")
        if "trust_remote_code" in inspect.signature(load_model).parameters:  # before 0.32 mlx_lm did not ask
            options["trust_remote_code"] = True
    try:
        model, config = load_model(folder, **options)
    except ValueError as error:
        raise ValueError(f"{reason}; mlx_lm cannot load it either: {' '.join(str(error).split())}") from error
    if adapter_path is not None:
        model = load_adapters(model, os.fspath(adapter_path))
        model.eval()
    warnings.warn(
        f"mlx_lm itself runs this {family} model, without axlm's core and its speculation: {reason}",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
    return model, config


def load_part(name: str, group: Any, pipeline: bool, trust_remote_code: bool, **options: Any) -> tuple[Any, ...]:
    """Load this process's part of a model in a distributed run, which the core does not take part in.

    Args:
        name: a model folder or repository.
        group: MLX's group of processes, more than one.
        pipeline: split the layers, not the tensors.
        trust_remote_code: as for :func:`axlm.load`.
        options: further arguments of mlx_lm's ``sharded_load``.

    Returns:
        (module, tokenizer), and the configuration if asked for.
    """
    from mlx_lm.utils import sharded_load

    if trust_remote_code:
        options["trust_remote_code"] = True
    return sharded_load(name, *((group, None) if pipeline else (None, group)), **options)


def steps(
    prompt: Any, model: Any, stream: Any, ngram: Any, seed: Any = None, **options: Any
) -> Iterator[tuple[int, mx.array]]:
    """Do what :func:`axlm.generate_step` does, with mlx_lm."""
    from mlx_lm.generate import generate_step

    ngram_options(ngram)  # wrong settings are as wrong here
    ids = _ids(prompt, options.get("input_embeddings"))
    yield from seeded(generate_step(ids, model, **_stream(stream), **options), checked_seed(seed))


def speculative_steps(
    prompt: Any, model: Any, draft_model: Any, stream: Any, seed: Any = None, **options: Any
) -> Iterator[tuple[int, mx.array, bool]]:
    """Do what :func:`axlm.generate.speculative_generate_step` does, with mlx_lm."""
    from mlx_lm.generate import speculative_generate_step

    items = speculative_generate_step(_ids(prompt, None), model, draft_model, **_stream(stream), **options)
    yield from seeded(items, checked_seed(seed))


def responses(
    make: Callable[..., GenerationResponse],
    model: Any,
    tokenizer: Any,
    prompt: Any,
    stream: Any,
    ngram: Any = True,
    seed: Any = None,
    **options: Any,
) -> Iterator[GenerationResponse]:
    """Do what :func:`axlm.stream_generate` does, with mlx_lm; ``make`` is the class of the responses."""
    from mlx_lm.generate import stream_generate

    ngram_options(ngram)
    if not isinstance(prompt, str):
        prompt = _ids(prompt, options.get("input_embeddings"))
    items = stream_generate(model, tokenizer, prompt, **_stream(stream), **options)
    for response in seeded(items, checked_seed(seed)):
        yield make(**{field.name: getattr(response, field.name) for field in fields(response)})


def _ids(prompt: Any, input_embeddings: Any) -> mx.array:
    import mlx.core as mx

    if input_embeddings is not None and not len(prompt):
        return mx.array([], mx.uint32)
    return mx.array(prompt_ids(prompt).tolist())


def _stream(stream: Any) -> dict[str, Any]:
    return {} if stream is None else {"stream": stream}
