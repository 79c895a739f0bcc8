"""A model that the Go core holds."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import _bridge
from ._crossing import pack_ids
from ._loan import lend, only_theirs
from ._stats import Stats
from ._tracing import inputs_of, traced

if TYPE_CHECKING:
    import mlx.core as mx
    from mlx.nn import Module as _Base
else:  # what a model is, too, is known when its family is
    _Base = object

_logger = logging.getLogger("axlm")


class Model(_Base):
    """A loaded model. :func:`axlm.load` makes them; any thread may use one, also while others do.

    A model that was loaded is also an instance of mlx_lm's class for its family, and of ``mlx.nn.Module``: it has that
    class's ``layers``, ``args``, ``make_cache`` and so on. Its ``parameters()`` share the core's memory; layers and
    weights cannot be changed, except by ``set_dtype``.

    Attributes:
        path: the MLX folder that it was loaded from.
        config: the contents of ``config.json``, with the end tokens of ``generation_config.json``.
        model_type: the family.
    """

    def __init__(
        self, handle: int, path: Path, config: dict[str, Any], overrides: dict[str, Any] | None = None
    ) -> None:
        info = _bridge.model_info(handle)
        self.path = path
        self.config = config
        self._overrides = overrides
        self.model_type = str(info["model_type"])
        self._info = info
        self._handle: int | None = handle
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _free, handle, self._owner)
        # At exit the system takes the memory back; the core may be busy then.
        self._finalizer.atexit = False

    @property
    def handle(self) -> int:
        """The core's handle.

        Raises:
            ValueError: the model is closed.
        """
        if self._handle is None:
            raise ValueError(f"this model is closed: {self.path}")
        return self._handle

    @property
    def nbytes(self) -> int:
        """The size of the weights in bytes."""
        return int(self._info["nbytes"])

    @property
    def vocab_size(self) -> int:
        """The number of token ids, V."""
        return int(self._info["vocab_size"])

    @property
    def num_parameters(self) -> int:
        """The number of parameters, those that are packed into few bits counted one each."""
        return int(self._info["num_parameters"])

    @property
    def num_caches(self) -> int:
        """The number of layers that have a state: objects in a prompt cache."""
        return int(self._info["num_caches"])

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # layers and whatever else mlx_lm's class has

    def __call__(
        self,
        inputs: mx.array | None,
        cache: Any = None,
        input_embeddings: mx.array | None = None,
        per_layer_inputs: mx.array | None = None,
        *,
        mask: Any = None,
    ) -> mx.array:
        """Run the model over whole sequences. The arguments are those that mlx_lm's classes have, in their order.

        Args:
            inputs: token ids [B, L], an integer array. None or an empty one with ``input_embeddings``.
            cache: mlx_lm's cache objects, one a layer, for what comes before the tokens; they hold them afterwards.
            input_embeddings: embeddings [B, L, D] in place of the tokens' own.
            per_layer_inputs: of Gemma 4 only, and not supported: the core computes them.
            mask: not supported: rows of unequal length need runs of their own.

        Returns:
            Logits [B, L, V] in the model's dtype, evaluated, in memory shared with the core. Where a transformation of
            MLX (``mx.grad``, ``vmap``, ``compile``, …) traces an argument, or a cache object is of a class that the
            core has no form for (padded batches), they are those of mlx_lm's class on the same weights, not evaluated.

        Raises:
            TypeError: the ids are not integers, or a cache object is none of mlx_lm's.
            ValueError: another shape than [B, L], no token, an id outside the vocabulary, a closed model, a cache that
                does not fit the model.
            NotImplementedError: ``mask`` or ``per_layer_inputs`` is given.
        """
        for name, given in (("mask", mask), ("per_layer_inputs", per_layer_inputs)):
            if given is not None:
                raise NotImplementedError(f"{name} is not supported: leave it at its default")
        if only_theirs(cache) or traced(inputs_of(cache, inputs, input_embeddings)):
            return self._traced_call(inputs, cache, input_embeddings)
        embeddings = 0
        tokens: Any = inputs
        shape = tuple(getattr(tokens, "shape", ()))
        if input_embeddings is not None:
            if getattr(input_embeddings, "ndim", 0) != 3:
                raise ValueError("input_embeddings must have the shape [B, L, D]")
            if tokens is None or 0 in shape:
                tokens, shape = [], (input_embeddings.shape[0], 0)
        elif len(shape) != 2 or 0 in shape:
            raise ValueError(
                f"model(inputs) wants token ids of shape [B, L] with at least one token, not {list(shape)}"
            )
        ids = pack_ids(tokens.reshape(-1) if shape[1] else tokens).tobytes()
        loan = lend(self, cache) if cache is not None else None
        if input_embeddings is not None:
            embeddings = _bridge.array_in(input_embeddings)
        return _bridge.forward(self.handle, ids, shape[0], loan.handle if loan else 0, embeddings)

    def _traced_call(self, inputs: mx.array | None, cache: Any, input_embeddings: mx.array | None) -> mx.array:
        """Do what a call does by mlx_lm's layers, as a function that MLX can transform."""
        raise NotImplementedError(
            "mx.grad, vjp, jvp, vmap, compile and padded batches need a model's layers in Python, which this one has "
            "not: the core runs it; mlx_lm.load gives a module with layers, if mlx_lm has the family"
        )

    def _adapt(self, adapter_path: str | os.PathLike[str]) -> None:
        """Take an adapter in place of the one that the model has; see :func:`axlm.utils.load_adapters`."""
        self._info = _bridge.adapt(self.handle, os.fspath(adapter_path))

    def keep_prefixes(self, limit: int | None) -> None:
        """Keep the states after prompts and answers, for requests that begin with the same tokens.

        Such a request goes on after the beginning that it shares, in whole blocks of 16 tokens; its own tokens are
        those that it would give without. How soon its first token comes shows that another request began alike. What is
        kept counts among the caches of :func:`axlm.memory.set_kv_bytes`, and gives way to requests. Nothing is kept of
        requests with embeddings, with quantised or bounded caches, or which continue a cache that was filled before.

        Args:
            limit: the most bytes to keep; None ends it and forgets all.

        Raises:
            TypeError: the limit is no integer.
            ValueError: it is not positive; the model is closed.
        """
        from ._request import integer

        _bridge.keep_prefixes(self.handle, 0 if limit is None else integer("limit", limit, 1))

    def stats(self) -> Stats:
        """Return the core's counters of this model, a dictionary; ``model.stats().plot()`` draws them."""
        return Stats(_bridge.stats(self.handle))

    def __reduce__(self) -> NoReturn:
        """A model lives in this process's core: a copy would be another model there, or none."""
        raise TypeError(f"a model cannot be copied or pickled; load {str(self.path)!r} again where it is needed")

    def close(self) -> None:
        """Give the model's memory back. What still uses it gets a ValueError; closing twice is harmless."""
        handle, self._handle = self._handle, None
        if handle is not None and self._finalizer.detach() and os.getpid() == self._owner:
            _bridge.model_free(handle)

    def __repr__(self) -> str:
        if self._handle is None:
            return f"<axlm.Model {self.model_type}, closed>"
        parts = [self.model_type]
        if count := self._info.get("num_parameters"):
            parts.append(f"{_scaled(count, ('', 'k', 'M', 'B', 'T'))} parameters")
        parts.append(_quantization(self.config))
        parts.append(_scaled(self.nbytes, (" B", " kB", " MB", " GB", " TB")))
        where = repr(str(self.path))
        if adapter := self._info.get("adapter"):
            where += f" with the adapter {adapter!r}"
        return f"<axlm.Model {', '.join(parts)}, {where}>"


def model_maker(
    folder: Path,
    config: dict[str, Any],
    overrides: dict[str, Any] | None,
    adapter_path: str | os.PathLike[str] | None,
) -> Callable[[int], Model]:
    """Prepare what makes a model of the core's handle: one that is a module, too, unless mlx_lm cannot load the folder.

    Args:
        folder: the model folder.
        config: the configuration, with the overrides.
        overrides: the entries of it that the caller replaced.
        adapter_path: the adapter's folder.

    Returns:
        A function of the handle.
    """
    from . import _module

    try:
        module = _module.build(folder, overrides, adapter_path)
    except Exception as error:
        _logger.warning(
            "axlm: this model writes text, but has no layers or parameters, as mlx_lm cannot load it: %s", error
        )
        return lambda handle: Model(handle, folder, config, overrides)
    return lambda handle: _module.model(handle, folder, config, overrides, module)


def _free(handle: int, owner: int) -> None:
    if os.getpid() == owner:  # the core does not live on in a forked child
        _bridge.model_free(handle, wait=False)  # nobody may wait here: another model's pass may be running


def _quantization(config: dict[str, Any]) -> str:
    """Describe the weights' storage: ``4-bit affine, group 64``, or the dtype of unquantised ones."""
    quantization = config.get("quantization")
    if not quantization:
        text = config.get("text_config", {})
        dtypes = (part.get(key) for part in (config, text) for key in ("dtype", "torch_dtype"))
        return next((str(dtype) for dtype in dtypes if dtype), "not quantised")
    words = (
        f"{quantization.get('bits')}-bit {quantization.get('mode', 'affine')}, group {quantization.get('group_size')}"
    )
    overrides = any(isinstance(value, dict) for value in quantization.values())
    return f"{words}, some layers otherwise" if overrides else words


def _scaled(value: float, units: tuple[str, ...]) -> str:
    """Format with three digits and a unit, each unit 1000 times the one before."""
    for unit in units[:-1]:
        if value < 999.5:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}{units[-1]}"
