"""Files of prompt caches.

The layout is mlx_lm's: arrays named by their place, ``layer.slot``, and metadata that flatten a list of three. Since
mlx_lm 0.32 these are the user's metadata, the classes' names, and what is no array in the states; before it, numbers
that belong to the states, the user's metadata, and the classes' names.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import mlx.core as mx
import mlx_lm
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models import cache as upstream

from .. import _bridge
from .._errors import file_error
from .._progress import Bar
from ._cache_state import complete, flaw

_PLAIN, _PACKED = ".safetensors", ".zst"

_MAX_EMPTY = 1 << 20
"""How many places in lists may be empty. Unflattening names such as ``0.999999999`` makes as many."""

_MAX_DEPTH = 100

Path: TypeAlias = "str | os.PathLike[str]"


def save(file_name: Path, cache: list[Any], metadata: Mapping[str, str] | None) -> None:
    """Write a cache; see :func:`axlm.models.cache.save_prompt_cache`."""
    if hasattr(file_name, "write"):
        upstream.save_prompt_cache(file_name, cache, metadata or {})
        return
    packed = os.fspath(file_name).endswith(_PACKED)
    target = check_target(file_name)
    folder = os.path.dirname(target)
    # In the target's folder: there a file of this size is expected, and from there it can be moved without a copy.
    with tempfile.TemporaryDirectory(prefix=".axlm-", dir=folder) as beside:
        whole = os.path.join(beside, "cache.safetensors")
        upstream.save_prompt_cache(whole, cache, metadata or {})
        if packed:
            _wait(lambda: _bridge.pack_start(whole, target), "Compressing")
            return
        if os.path.exists(target):
            shutil.copymode(target, whole)
        os.replace(whole, target)


def check_target(file_name: Path) -> str:
    """Find the file to write for a name.

    Returns:
        Its path, with the ending, behind any links.

    Raises:
        FileNotFoundError: the folder is missing.
        OSError: something other than a file has the name.
    """
    name = os.fspath(file_name)
    if not name.endswith((_PLAIN, _PACKED)):
        name += _PLAIN
    target = os.path.realpath(name)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise file_error(f"{name}: there is no folder {folder}", name)
    if os.path.exists(target) and not os.path.isfile(target):
        raise file_error(f"{name} is not a regular file", name, errno.EISDIR if os.path.isdir(target) else errno.EINVAL)
    return target


def load(file_name: Path) -> tuple[list[Any], Any]:
    """Read a cache and the user's metadata; see :func:`axlm.models.cache.load_prompt_cache`."""
    name = file_name.name if hasattr(file_name, "read") else os.fspath(file_name)
    if name.endswith(_PACKED):
        sizes = _bridge.cache_file_sizes(name, packed=True)
        with _unpacked(name, sizes["content"]) as plain:
            cache, metadata = _read(plain, name)
            mx.eval([leaf for _, leaf in tree_flatten([c.state for c in cache]) if isinstance(leaf, mx.array)])
            return cache, metadata
    _bridge.cache_file_sizes(name, packed=False)
    if not name.endswith(_PLAIN):
        raise ValueError(f"{name}: the name of a prompt cache ends in {_PLAIN}, or in {_PACKED} if it is compressed")
    return _read(name, name)


@contextlib.contextmanager
def _unpacked(name: str, size: int) -> Iterator[str]:
    """A plain file with the content, of ``size`` bytes, of a packed one."""
    memory = int(_bridge.device().get("memory_size") or 0)
    if memory and size > memory:
        raise ValueError(f"{name} would unpack to {size} bytes, more than the memory of this machine ({memory})")
    beside = os.path.dirname(os.path.realpath(name))
    for folder in (tempfile.gettempdir(), beside):
        with contextlib.suppress(OSError):
            if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > size:
                break
    else:
        raise file_error(
            f"{name} needs {size} bytes to unpack, which neither {tempfile.gettempdir()} nor {beside} has",
            name,
            errno.ENOSPC,
        )
    with tempfile.TemporaryDirectory(prefix=".axlm-", dir=folder) as temporary:
        plain = os.path.join(temporary, "cache.safetensors")
        _wait(lambda: _bridge.unpack_start(name, plain, size), "Unpacking")
        yield plain


def _wait(start: Callable[[], int], description: str) -> None:
    """Run a job of the core to its end, showing a bar. An interruption gives it up."""
    bar = Bar(description, "B")
    job = start()
    try:
        while not (state := _bridge.pack_wait(job, _bridge.WAIT_MS))["ended"]:
            if state["total"]:
                bar.update(state["done"], state["total"])
    finally:
        _bridge.pack_cancel(job)
        bar.close()


def _read(plain: str, name: str) -> tuple[list[Any], Any]:
    """Read a file whose header is right; errors call it ``name``."""
    try:
        arrays, flat = mx.load(plain, return_metadata=True)
    except Exception as error:
        raise ValueError(f"{name} cannot be read: {error}") from error
    try:
        return _assemble(arrays, flat)
    except ValueError as error:
        raise ValueError(f"{name} {error}") from error.__cause__


def _assemble(arrays: dict[str, mx.array], flat: dict[str, str]) -> tuple[list[Any], Any]:
    """Make cache objects of a file's arrays and metadata.

    Raises:
        ValueError: why that does not work, as a predicate: "is damaged: …".
    """
    parts = _unflatten(flat)
    current = _texts(parts[2])[:1] == [""] if len(parts) == 3 else False
    if len(parts) != 3 or not (current or _texts(parts[2])):
        raise ValueError(f"is a safetensors file, but no prompt cache: {_holds(arrays)}")
    reads_current = not hasattr(upstream.KVCache, "meta_state")
    if current != reads_current:
        other = "0.32 or later" if current else "before 0.32"
        raise ValueError(
            f"is a prompt cache of an mlx_lm {other}, which mlx_lm {mlx_lm.__version__} does not read: make it again"
        )
    if current:
        metadata, names, _ = parts
        arrays = {**arrays, **_values(arrays, parts[2][1:])}
        beside: list[tuple[Any, ...]] = []
    else:
        infos, metadata, names = parts
        beside = [(info,) for info in infos]
    classes = [_class_of(name, layer) for layer, name in enumerate(_texts(names))]
    states = _unflatten(arrays)
    if len(states) != len(classes) or (beside and len(beside) != len(classes)):
        raise ValueError(f"is damaged: it names {len(classes)} layers, but has the states of {len(states)}")
    cache = []
    for layer, (cls, state) in enumerate(zip(classes, states, strict=True)):
        try:
            # mlx_lm saves an empty one of this class, but cannot make one of its state.
            empty = cls is upstream.ConcatenateKVCache and all(part is None for part in state)
            made = cls() if empty else cls.from_state(state, *(beside[layer] if beside else ()))
            complete(made)
            wrong = flaw(made)
        except Exception as error:
            raise ValueError(f"is damaged: layer {layer} is no {cls.__name__}: {error}") from error
        if wrong:
            raise ValueError(f"is damaged: layer {layer}, a {cls.__name__}: {wrong}")
        cache.append(made)
    return cache, metadata


def _unflatten(flat: Mapping[str, Any]) -> Sequence[Any]:
    """The list that was flattened, none if it was no list.

    Raises:
        ValueError: names that would take lists out of all proportion.
    """
    lengths: dict[str, int] = {}
    for name in flat:
        parts = name.split(".")
        if len(parts) > _MAX_DEPTH:
            raise ValueError(f"is damaged: a name has {len(parts)} parts: {name[:40]}…")
        prefix = ""
        for part in parts:
            with contextlib.suppress(ValueError):
                lengths[prefix] = max(lengths.get(prefix, 0), int(part) + 1)
            prefix += f"{part}."
    if sum(lengths.values()) > _MAX_EMPTY + len(flat) * _MAX_DEPTH:
        raise ValueError("is damaged: names count to numbers that no prompt cache has")
    tree = tree_unflatten(list(flat.items()))
    return tree if isinstance(tree, list) else []


def _texts(part: Any) -> list[str]:
    """The texts in a list, {} where it was empty and left no trace; pairs come as their own lists and are left out."""
    return [text for text in part if isinstance(text, str)] if isinstance(part, list) else []


def _values(arrays: Mapping[str, mx.array], marks: Sequence[Any]) -> dict[str, Any]:
    """The values in the states that are no arrays, from the arrays that stand for them."""
    found: dict[str, Any] = {}
    for mark in marks:
        try:
            name, kind = mark
            array = arrays[name]
            if kind == "scalar":
                found[name] = array.item()
            elif kind == "string":
                found[name] = "".join(map(chr, array.tolist()))
            elif kind == "none":
                found[name] = None
            else:
                raise ValueError(f"no kind {kind!r}")
        except Exception as error:
            raise ValueError(f"is damaged: its metadata have {mark!r} among the values that are no arrays") from error
    return found


def _class_of(name: str, layer: int) -> type[Any]:
    cls = getattr(upstream, name, None)
    if not (isinstance(cls, type) and hasattr(cls, "from_state")):
        raise ValueError(f"is no prompt cache of mlx_lm {mlx_lm.__version__}: layer {layer} is a {name!r}")
    return cls


def _holds(arrays: Mapping[str, mx.array]) -> str:
    names = sorted(arrays)
    if not names:
        return "it holds nothing"
    return f"it holds {', '.join(names[:3])}{' …' if len(names) > 3 else ''}"
