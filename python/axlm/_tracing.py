"""Arrays that MLX's transformations (``mx.grad``, ``vjp``, ``jvp``, ``vmap``, ``compile``, …) trace.

The core computes from an array's values, so what it returns is a constant to a transformation. Where an argument is
traced, something else has to answer: mlx_lm's module on the same weights, or an error.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ._loan import loan_of

if TYPE_CHECKING:
    import mlx.core as mx


def traced(arrays: Iterable[mx.array]) -> bool:
    """Evaluate arrays, and tell whether a transformation of MLX is tracing one of them."""
    import mlx.core as mx

    arrays = list(arrays)
    if not arrays:
        return False
    try:
        mx.eval(arrays)
    except ValueError as error:
        if "function transformations" in str(error):  # vmap and compile trace without values
            return True
        raise
    # Derivatives do have values. An evaluated array forgets what it was computed from unless it is traced.
    graph = io.StringIO()
    mx.export_to_dot(graph, *arrays)
    return "->" in graph.getvalue()


def inputs_of(cache: Any, *others: Any) -> Iterator[mx.array]:
    """Iterate over the arrays among some arguments and in cache objects. What the core holds already is not traced."""
    import mlx.core as mx

    yield from (other for other in others if isinstance(other, mx.array))
    for layer in cache if isinstance(cache, (list, tuple)) else ():
        if loan_of(layer) is None:
            yield from _arrays(getattr(layer, "__dict__", {}).values())


def _arrays(values: Iterable[Any]) -> Iterator[mx.array]:
    import mlx.core as mx

    for value in values:
        if isinstance(value, mx.array):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _arrays(value)


def refuse_traced(cache: Any, *others: Any) -> None:
    """Check the arguments of something that has no derivative.

    Raises:
        NotImplementedError: one is traced.
    """
    if traced(inputs_of(cache, *others)):
        raise NotImplementedError(
            "generating is no part of a transformation of MLX (grad, vjp, jvp, vmap, compile): call the model instead, "
            "which can be one, or generate outside of the function that is transformed"
        )
