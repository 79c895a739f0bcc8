"""Tokenizers as `tokenizers` runs them, made of vocabularies stored in other forms: GGUF, SentencePiece, byte ranks."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from axlm._gguf import CONTROL, USER_DEFINED
from fixtures.tiny_tokenizers import QWEN_SPLIT
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

QWEN3_5_SPLIT = QWEN_SPLIT.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
"""Words of Qwen3.5: as Qwen's, with the marks that combine with letters."""

SPLITS = {"qwen2": QWEN_SPLIT, "qwen35": QWEN3_5_SPLIT}  # by GGUF's names
PLACEHOLDER = re.compile(r"\[PAD\d+\]")  # fills a vocabulary up to the rows of the embedding

Merges = Sequence[tuple[str, str]]


def from_gguf(meta: dict[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF file's keys: byte-level (Qwen) or byte-fallback (Gemma) BPE.

    Raises:
        ValueError: a kind that is not known here.
    """
    tokens, types = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in meta.get("tokenizer.ggml.merges", ())]
    added = [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in zip(tokens, types, strict=True)
        if kind in (CONTROL, USER_DEFINED) and not PLACEHOLDER.fullmatch(token)
    ]
    kind = meta["tokenizer.ggml.model"]
    if kind == "gpt2" and (split := SPLITS.get(meta["tokenizer.ggml.pre"])):
        apart = {token.content for token in added}
        plain = {t: i for i, t in enumerate(tokens) if t not in apart and not PLACEHOLDER.fullmatch(t)}
        return _byte_level(plain, merges, split, added)
    if kind == "gemma4":
        return _byte_fallback({token: index for index, token in enumerate(tokens)}, merges, added)
    if kind == "llama" and not meta["tokenizer.ggml.add_space_prefix"]:
        # SentencePiece keeps the spaces of tokens that it looks for before all others; BPE sees "▁" by then
        runs = {token for token, kind in zip(tokens, types, strict=True) if kind == USER_DEFINED}
        pieces = [token.replace(" ", "▁") for token in tokens]
        first = {piece: len(piece) for token, piece in zip(tokens, pieces, strict=True) if token in runs}
        scores = dict(zip(pieces, meta["tokenizer.ggml.scores"], strict=True))
        order = {piece: (-first.get(piece, 0), -score) for piece, score in scores.items()}
        added = [AddedToken(t.content.replace(" ", "▁"), special=t.special, normalized=False) for t in added]
        skipped = {token.content for token in added if token.special}
        return _byte_fallback({piece: i for i, piece in enumerate(pieces)}, _splits(order, skipped), added)
    raise ValueError(f"GGUF tokenizer {kind}/{meta.get('tokenizer.ggml.pre')} cannot be converted")


def from_ranks(file: Path, split: str, added: Iterable[AddedToken]) -> Tokenizer:
    """The byte-level tokenizer of a file with lines of a token's bytes in base64 and its rank, which is its id.

    Args:
        file: the ranks, from 0 on.
        split: the regular expression of words.
        added: further tokens; their ids follow.
    """
    letters = _letters()
    ranks: dict[str, int] = {}
    for line in file.read_bytes().splitlines():
        token, rank = line.split()
        ranks["".join(letters[byte] for byte in base64.b64decode(token))] = int(rank)
    return _byte_level(ranks, _splits(ranks), split, added)


def described(meta: dict[str, Any]) -> dict[str, Any]:
    """What a GGUF file's keys say for tokenizer_config.json: named tokens, chat template, longest text."""
    tokens = meta["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {"model_max_length": meta[f"{meta['general.architecture']}.context_length"]}
    for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown")):
        if (index := meta.get(f"tokenizer.ggml.{name}_token_id")) is not None:
            config[f"{key}_token"] = tokens[index]
    if "tokenizer.chat_template" in meta:
        config["chat_template"] = meta["tokenizer.chat_template"]
    return config


def write(folder: Path, tokenizer: Tokenizer, config: dict[str, Any]) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    Args:
        folder: a model folder.
        tokenizer: what tokenizer.json holds.
        config: tokenizer_config.json's keys beside those that say how the other file is to be read: as it stands.
    """
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **config}
    text = json.dumps(config, indent=1, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def _letters() -> dict[int, str]:
    """The characters that stand for bytes in byte-level vocabularies: printable ones for themselves, then U+0100 on."""
    letters = {byte: chr(byte) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(0x100 + len(letters) - 188)
    return letters


def _splits(order: dict[str, Any], skipped: Iterable[str] = ()) -> Merges:
    """The merges of a vocabulary without any: each token of each two others, tokens in the order of their values."""
    apart = set(skipped)
    merges = []
    for token in sorted(order.keys() - apart, key=order.__getitem__):
        halves = ((token[:at], token[at:]) for at in range(1, len(token)))
        found = [pair for pair in halves if pair[0] in order and pair[1] in order and not apart & set(pair)]
        merges += sorted(found, key=lambda pair: (order[pair[0]], order[pair[1]]))
    return merges


def _byte_level(vocabulary: dict[str, int], merges: Merges, split: str, added: Iterable[AddedToken]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_tokens(list(added))
    return tokenizer


def _byte_fallback(vocabulary: dict[str, int], merges: Merges, added: Iterable[AddedToken]) -> Tokenizer:
    model = models.BPE(vocab=vocabulary, merges=list(merges), unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens(list(added))
    bos = ("<bos>", vocabulary["<bos>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[bos]
    )
    return tokenizer
