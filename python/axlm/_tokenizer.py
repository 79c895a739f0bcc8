"""Tokenizers as mlx_lm loads them, mended where their files contradict themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper


def load(folder: Any, config: dict[str, Any] | None, eos_token_ids: Any) -> TokenizerWrapper:
    """Do what ``mlx_lm.utils.load_tokenizer`` does, and let what spells text in bytes read bytes.

    A ``tokenizer.json`` whose pre-tokenizer writes bytes as letters (``Ġ`` is a space) beside a decoder that joins
    SentencePiece's tokens, as converters of files leave them, would give these letters as the text.
    """
    from mlx_lm.utils import load_tokenizer

    tokenizer = load_tokenizer(folder, config, eos_token_ids=eos_token_ids)
    backend = getattr(tokenizer, "backend_tokenizer", None)  # tokenizers written in Python have none
    if backend is not None and _byte_level(backend.pre_tokenizer) and not _byte_level(backend.decoder):
        from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer
        from tokenizers.decoders import ByteLevel

        backend.decoder = ByteLevel()
        tokenizer._detokenizer = BPEStreamingDetokenizer(tokenizer)
    return tokenizer


def _byte_level(part: Any) -> bool:
    """Tell whether a part of a tokenizer is one of bytes, or a sequence with one in it."""
    return part is not None and b'"ByteLevel"' in part.__getstate__()
