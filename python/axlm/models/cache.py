"""Prompt caches: the names of ``mlx_lm.models.cache``.

The classes are mlx_lm's own. A generation on a model of ours lends their arrays to the core, and whoever reads or
changes one has them back. Files are mlx_lm's own too; a name that ends in ``.zst`` means such a file compressed with
zstd, by all processors, which any zstd program unpacks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from mlx_lm.models import cache as _theirs
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    ChunkedKVCache,
    ConcatenateKVCache,
    KVCache,
    LRUPromptCache,
    PromptTrie,
    PromptTrieResult,
    QuantizedKVCache,
    RotatingKVCache,
    TokenBuffer,
    can_trim_prompt_cache,
    create_attention_mask,
    create_causal_mask,
    dynamic_roll,
    trim_prompt_cache,
)

from .._delegate import delegate
from ..model import Model
from . import _cache_file

if TYPE_CHECKING:
    import mlx.nn as nn

__all__ = [
    "ArraysCache",
    "BatchKVCache",
    "BatchRotatingKVCache",
    "CacheList",
    "ChunkedKVCache",
    "ConcatenateKVCache",
    "KVCache",
    "LRUPromptCache",
    "PromptTrie",
    "PromptTrieResult",
    "QuantizedKVCache",
    "RotatingKVCache",
    "TokenBuffer",
    "can_trim_prompt_cache",
    "create_attention_mask",
    "create_causal_mask",
    "dynamic_roll",
    "load_prompt_cache",
    "make_prompt_cache",
    "save_prompt_cache",
    "trim_prompt_cache",
]

__getattr__, __dir__ = delegate(__name__)


def make_prompt_cache(model: nn.Module, max_kv_size: int | None = None) -> list[Any]:
    """Make empty cache objects for a model.

    Args:
        model: a model from :func:`axlm.load`, or one of mlx_lm's.
        max_kv_size: the most rows that attention remembers; ignored where the model has caches of its own kinds.

    Returns:
        Cache objects, one a layer.
    """
    if not isinstance(model, Model) or hasattr(model, "make_cache"):
        return _theirs.make_prompt_cache(model, max_kv_size)
    # mlx_lm counts the layers, and looking at them fetches the weights.
    if max_kv_size is None:
        return [KVCache() for _ in range(model.num_caches)]
    return [RotatingKVCache(max_size=max_kv_size, keep=4) for _ in range(model.num_caches)]


def save_prompt_cache(
    file_name: str | os.PathLike[str], cache: list[Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Write a prompt cache to a file, which appears whole or not at all.

    Args:
        file_name: a name in ``.safetensors``, which is added if need be; or one in ``.zst`` to have it compressed. An
            open binary file is written to as it is.
        cache: cache objects, one a layer.
        metadata: strings to be kept with it.

    Raises:
        FileNotFoundError: the folder is missing.
        OSError: the file cannot be written.
        ValueError: metadata that are no strings, or a cache whose state cannot be saved.
    """
    _cache_file.save(file_name, cache, metadata)


@overload
def load_prompt_cache(file_name: str | os.PathLike[str], return_metadata: Literal[False] = False) -> list[Any]: ...
@overload
def load_prompt_cache(
    file_name: str | os.PathLike[str], return_metadata: Literal[True]
) -> tuple[list[Any], dict[str, Any]]: ...
@overload
def load_prompt_cache(
    file_name: str | os.PathLike[str], return_metadata: bool
) -> list[Any] | tuple[list[Any], dict[str, Any]]: ...
def load_prompt_cache(
    file_name: str | os.PathLike[str], return_metadata: bool = False
) -> list[Any] | tuple[list[Any], dict[str, Any]]:
    """Read a prompt cache from a file of :func:`save_prompt_cache` or of mlx_lm.

    Args:
        file_name: a name in ``.safetensors``, whose arrays are read when they are used, or one in ``.zst``.
        return_metadata: return the strings that were kept with it as well.

    Returns:
        Cache objects, one a layer; with ``return_metadata`` a tuple of them and the metadata. Names with dots in them
        become nested dictionaries there, as in mlx_lm.

    Raises:
        FileNotFoundError: there is no such file.
        OSError: the file cannot be read, or there is no room to unpack it.
        ValueError: the file is damaged, truncated, or no prompt cache; the text says which.
    """
    cache, metadata = _cache_file.load(file_name)
    return (cache, metadata) if return_metadata else cache
