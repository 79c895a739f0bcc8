"""The state of MLX's random generator, ``mx.random.state``: one key of 64 bits in each thread."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def state() -> int:
    """Return this thread's key: what :func:`mlx.core.random.seed` was called with, if nothing was drawn since."""
    import mlx.core as mx

    high, low = mx.random.state[0].tolist()
    return high << 32 | low


@contextlib.contextmanager
def kept_on_error() -> Iterator[None]:
    """Leave the state as it was if the block fails.

    ``mx.compile`` does not: what fails while it is traced, as mlx_lm's samplers do that refuse a setting, leaves a
    placeholder there, with which nothing can be drawn any more.
    """
    import mlx.core as mx

    before = mx.random.state[0]
    try:
        yield
    except BaseException:
        with contextlib.suppress(ValueError):  # within a function that the caller compiles, it was one before, too
            high, low = before.tolist()
            mx.random.seed(high << 32 | low)
        raise


def checked_seed(seed: Any) -> int | None:
    """Check the argument ``seed``.

    Raises:
        TypeError: it is neither an integer nor None.
        ValueError: it does not fit 64 bits, or is negative.
    """
    if seed is None:
        return None
    try:
        if isinstance(seed, bool):
            raise TypeError
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"seed must be an integer, not {type(seed).__name__}") from None
    if not 0 <= number < 2**64:
        raise ValueError(f"seed must lie in 0 … 2**64 - 1, not {number}")
    return number


def seeded(items: Iterator[T], seed: int | None) -> Iterator[T]:
    """Iterate with a random state of the iterator's own, which starts with a seed, and leave the caller's as it is.

    Without a seed the iterator has the caller's.
    """
    return items if seed is None else _with_own_state(items, seed)


def _with_own_state(items: Iterator[T], own: int) -> Iterator[T]:
    import mlx.core as mx

    try:
        while True:
            callers = state()
            mx.random.seed(own)
            try:
                item = next(items)
                own = state()
            except StopIteration:
                return
            finally:
                mx.random.seed(callers)
            yield item
    finally:
        if close := getattr(items, "close", None):
            close()
