"""Case 24: tied embeddings with a head of their own in the file, untied ones without it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import axlm
import mlx.core as mx
import mlx_lm
import pytest
from fixtures import altered
from oracle import generated, ours, prompt_of, reference

Tiny = Callable[[str], Path]

HEADS = {
    "llama-tied": "lm_head",
    "qwen2": "lm_head",
    "qwen3": "lm_head",
    "qwen3_moe-sparse": "lm_head",
    "qwen3_5": "language_model.lm_head",
    "gemma4": "language_model.lm_head",
    "gemma4_text": "lm_head",
}
"""Models with tied embeddings, and what their head would be called."""


def with_head(folder: Path, target: Path, head: str) -> Path:
    """A copy that holds a head as well, the embedding with its rows moved by one."""
    shutil.copytree(folder, target)

    def add(tensors: dict[str, altered.Raw]) -> None:
        embedding = next(tensor for name, tensor in tensors.items() if name.endswith("embed_tokens.weight"))
        row = len(embedding.data) // embedding.shape[0]
        rolled = embedding.data[row:] + embedding.data[:row]
        tensors[f"{head}.weight"] = altered.Raw(embedding.dtype, embedding.shape, rolled)

    altered.change(target, add)
    return target


@pytest.mark.parametrize("name", HEADS)
def test_a_head_beside_tied_embeddings_is_ignored(tiny: Tiny, tmp_path: Path, name: str) -> None:
    folder = tiny(f"{name}-f32")
    headed = with_head(folder, tmp_path / "headed", HEADS[name])
    model, _ = axlm.utils.load_model(headed)
    ids = prompt_of(folder, "text")
    assert generated(model, ids, 32) == reference(folder, ids, 32).ids
    model.close()


@pytest.mark.parametrize(("name", "head"), [("gemma3", "language_model.lm_head"), ("gemma3_text", "lm_head")])
def test_a_head_of_gemma3_is_used_if_it_is_there(tiny: Tiny, tmp_path: Path, name: str, head: str) -> None:
    """It has no setting for it: the file decides."""
    folder = tiny(f"{name}-f32")
    headed = with_head(folder, tmp_path / "headed", head)
    tokens = mx.array([prompt_of(folder, "text")])
    model, _ = axlm.utils.load_model(headed)
    theirs, _ = mlx_lm.utils.load_model(headed)
    logits = model(tokens)
    assert mx.allclose(logits, theirs(tokens), rtol=0, atol=2e-4)
    assert not mx.allclose(logits, ours(folder)[0](tokens), rtol=0, atol=1)
    model.close()


@pytest.mark.parametrize("name", HEADS)
def test_a_missing_head_is_named(tiny: Tiny, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(tiny(f"{name}-f32"), tmp_path / "model"))
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"tie_word_embeddings": true', '"tie_word_embeddings": false'))
    if '"tie_word_embeddings": false' not in (folder / "config.json").read_text():
        altered.edit_config(folder, tie_word_embeddings=False)
    with pytest.raises(ValueError, match=rf"tensor {HEADS[name]}\.weight is missing"):
        axlm.load(folder)
