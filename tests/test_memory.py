"""What a request's state takes: layers that see a window hold no more than it, however long the text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import pytest
from axlm import NgramConfig
from oracle import ours

Tiny = Callable[[str], Path]

WINDOW = 16
CHUNK = 256
"""Rows by which a full layer's buffers grow."""

TAIL = 64
"""Rows behind a window for those of a verifying pass, until it is known which of them stay."""

EAGER = NgramConfig(adaptive=False, max_draft_tokens=6, ema_threshold=0.0)


def cache_bytes(folder: Path, tokens: int, ngram: Any) -> int:
    model, tokenizer = ours(folder)
    usual, tokenizer.eos_token_ids = tokenizer.eos_token_ids, set()
    try:
        *_, last = axlm.stream_generate(model, tokenizer, [1, 2, 3], max_tokens=tokens, ngram=ngram)
    finally:
        tokenizer.eos_token_ids = usual
    assert last.generation_tokens == tokens
    return last.stats["cache_bytes"]


@pytest.mark.parametrize("ngram", [False, EAGER], ids=["plain", "drafts"])
@pytest.mark.parametrize("name", ["gemma4_text", "gemma4-all", "gemma3", "llama-sliding"])
def test_windowed_layers_stay_at_the_window(tiny: Tiny, name: str, ngram: Any) -> None:
    folder = tiny(f"{name}-f32")
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    layers = config["num_hidden_layers"]
    every = config.get("sliding_window_pattern", layers)
    kinds = config.get("layer_types") or ["full_attention" if (i + 1) % every == 0 else "" for i in range(layers)]
    own = kinds[: layers - config.get("num_kv_shared_layers", 0)]
    full = own.count("full_attention")

    def row(heads: str, size: str) -> int:
        """The bytes of one token's keys and values in a layer."""
        heads_of = config.get(heads, config["num_key_value_heads"])
        return 2 * 4 * heads_of * config.get(size, config["head_dim"])

    grown = full * row("num_global_key_value_heads", "global_head_dim")
    for tokens, chunks in ((100, 1), (200, 1), (300, 2)):
        rest = cache_bytes(folder, tokens, ngram) - chunks * CHUNK * grown
        rows = rest / (len(own) - full) / row("num_key_value_heads", "head_dim")
        most = WINDOW if ngram is False else WINDOW + TAIL + 1 + EAGER.max_draft_tokens
        assert WINDOW <= rows <= most, tokens


LONG = """
import json, sys
import mlx.core as mx
folder, engine, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
ids = list(range(10, 110))
if engine == "mlx_lm":
    from mlx_lm import load
    from mlx_lm.generate import generate_step
    steps = generate_step(mx.array(ids), load(folder)[0], max_tokens=-1)
    active = mx.get_active_memory
else:
    import axlm
    from axlm import _bridge
    model, _ = axlm.utils.load_model(folder)
    steps = axlm.generate_step(ids, model, max_tokens=-1, ngram=engine == "axlm with drafts")
    active = lambda: _bridge.memory()["active"]
for _ in range(count):
    token, logprobs = next(steps)
del logprobs
print(active())
"""


def active_memory(folder: Path, engine: str, tokens: int) -> int:
    words = [sys.executable, "-c", LONG, str(folder), engine, str(tokens)]
    result = subprocess.run(words, capture_output=True, text=True)
    # An interpreter that ran mlx_lm's generation may abort when it ends; its work is done by then.
    assert result.stdout.strip().isdigit(), result.stderr
    return int(result.stdout)


@pytest.mark.real
@pytest.mark.parametrize("name", ["gemma4-f32", "gemma4-all-f32"])
def test_a_long_text_takes_no_more_memory_than_in_mlx_lm(tiny: Tiny, name: str) -> None:
    folder = tiny(name)
    theirs = active_memory(folder, "mlx_lm", 8192)
    for engine in ("axlm", "axlm with drafts"):
        found = active_memory(folder, engine, 8192)
        print(f"{name}: {engine} {found:,} bytes active after 8,192 tokens, mlx_lm {theirs:,}")
        assert found <= theirs
