"""What a request's state takes: layers that see a window hold no more than it, however long the text."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
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

PAGE = 16384

EAGER = NgramConfig(adaptive=False, max_draft_tokens=6, ema_threshold=0.0)


@dataclass(frozen=True)
class Layers:
    """The layers with keys and values of their own: how many of each kind, and a token's bytes in one."""

    windowed: int
    windowed_row: int
    full: int
    full_row: int


def layers_of(folder: Path) -> Layers:
    config = json.loads((folder / "config.json").read_text())
    config = config.get("text_config", config)
    count = config["num_hidden_layers"]
    every = config.get("sliding_window_pattern", count)
    kinds = config.get("layer_types") or ["full_attention" if (i + 1) % every == 0 else "" for i in range(count)]
    own = kinds[: count - config.get("num_kv_shared_layers", 0)]
    full = own.count("full_attention")
    heads, size = config["num_key_value_heads"], config["head_dim"]
    full_row = config.get("num_global_key_value_heads", heads) * config.get("global_head_dim", size)
    return Layers(len(own) - full, 2 * 4 * heads * size, full, 2 * 4 * full_row)


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
    layers = layers_of(folder)
    for tokens, chunks in ((100, 1), (200, 1), (300, 2)):
        rest = cache_bytes(folder, tokens, ngram) - chunks * CHUNK * layers.full * layers.full_row
        rows = rest / layers.windowed / layers.windowed_row
        most = WINDOW if ngram is False else WINDOW + TAIL + 1 + EAGER.max_draft_tokens
        assert WINDOW <= rows <= most, tokens


LONG = """
import sys
import mlx.core as mx
folder, engine, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = {}
if engine == "mlx_lm":
    from mlx_lm.utils import load_model
    from mlx_lm.generate import generate_step
    from mlx_lm.models.cache import make_prompt_cache
else:
    from axlm import generate_step
    from axlm.utils import load_model
    from axlm.models.cache import make_prompt_cache
    options["ngram"] = engine == "axlm with drafts"
from pathlib import Path
model, _ = load_model(Path(folder))
cache = make_prompt_cache(model)
for token, _ in generate_step(mx.arange(10, 110), model, max_tokens=count, prompt_cache=cache, **options):
    pass
del _
assert cache[0].offset == 100 + count
mx.eval([layer.state for layer in cache])
mx.synchronize()
print(mx.get_active_memory())
"""


def active_memory(folder: Path, engine: str, tokens: int) -> int:
    words = [sys.executable, "-c", LONG, str(folder), engine, str(tokens)]
    result = subprocess.run(words, capture_output=True, text=True)
    # An interpreter that ran mlx_lm's generation may abort when it ends; its work is done by then.
    assert result.stdout.strip().isdigit(), result.stderr
    return int(result.stdout)


@pytest.mark.real
@pytest.mark.parametrize("name", ["gemma4-bare", "gemma4_text"])
def test_a_long_text_takes_no_more_memory_than_in_mlx_lm(tiny: Tiny, name: str) -> None:
    """8,192 tokens: afterwards both hold the weights and the text's cache, in a process that does nothing else.

    MLX's allocator gives arrays buffers that are up to a page larger than they are, which a model of this size shows;
    windowed layers that kept the text would take megabytes.
    """
    folder = tiny(f"{name}-f32")
    layers = layers_of(folder)
    theirs = active_memory(folder, "mlx_lm", 8192)
    slack = 2 * layers.windowed * PAGE
    assert slack < 8192 * layers.windowed_row
    for engine in ("axlm", "axlm with drafts"):
        found = active_memory(folder, engine, 8192)
        print(f"{engine}: {found:,} bytes active after 8,192 tokens; mlx_lm: {theirs:,}")
        assert found <= theirs + slack, engine
