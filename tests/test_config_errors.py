"""What config.json says of a family and cannot be: each is a ValueError that names the key, and the next load works."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import pytest

Tiny = Callable[[str], Path]

SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    # what: (model, changed keys, None to remove one; the message)
    "unknown kind of layer": (
        "llama-sliding",
        {"layer_types": [SLIDING, "mamba", SLIDING, FULL, FULL]},
        r'config\.json: layer_types: layer 1: unknown kind "mamba"',
    ),
    "unknown kind, nested": (
        "gemma4-all",
        {"layer_types": [SLIDING, SLIDING, FULL, SLIDING, "chunked_attention", FULL]},
        r'text_config\.layer_types: layer 4: unknown kind "chunked_attention"',
    ),
    "unknown kind beside an interval": (
        "qwen3_5",
        {"layer_types": [LINEAR] * 7 + ["ssm"]},
        r'text_config\.layer_types: layer 7: unknown kind "ssm"',
    ),
    "unknown kind beside a pattern": ("gemma3", {"layer_types": ["x"] * 5}, r'layer_types: layer 0: unknown kind "x"'),
    "kinds for other layers": (
        "llama-sliding",
        {"layer_types": [SLIDING, FULL]},
        "layer_types: 2 entries for 5",
    ),
    "no window": ("llama-sliding", {"sliding_window": None}, "sliding_window is missing"),
    "window of nothing": (
        "gemma3",
        {"sliding_window": 0},
        r"text_config\.sliding_window: want a positive integer",
    ),
    "pattern of nothing": ("gemma3", {"sliding_window_pattern": 0}, "sliding_window_pattern: want a positive integer"),
    "interval of nothing": ("qwen3_5", {"full_attention_interval": 0}, "full_attention_interval: want a positive"),
    "heads do not divide": (
        "qwen2",
        {"num_key_value_heads": 3},
        "num_key_value_heads: 3 does not divide num_att",
    ),
    "nor nested": ("gemma4", {"num_key_value_heads": 3}, r"text_config\.num_key_value_heads: 3 does not divide"),
    "nor in llama": ("llama", {"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide|not a multiple of"),
    "nor globally": ("gemma4-all", {"num_global_key_value_heads": 3}, "num_global_key_value_heads: 3 does not divide"),
    "nor linear ones": ("qwen3_5", {"linear_num_key_heads": 3}, "linear_num_key_heads: 3 does not divide"),
    "more heads than features": ("qwen2", {"num_attention_heads": 256}, "256 heads do not fit hidden_size 128"),
    "heads of another model": (
        "qwen3_5",
        {"num_attention_heads": 8},
        r"self_attn\.q_proj\.weight: want shape \[1024,",
    ),
    "shared layers without a source": (
        "gemma4-all",
        {"num_kv_shared_layers": 4},
        r"text_config\.num_kv_shared_layers: layer 2 \(full_attention\) shares keys and values, but no earlier layer",
    ),
    "all layers shared": ("gemma4", {"num_kv_shared_layers": 8}, "num_kv_shared_layers: want fewer than the layers"),
    "fewer than none shared": ("gemma4", {"num_kv_shared_layers": -1}, "num_kv_shared_layers: want fewer"),
    "fewer shared than are": ("gemma4-all", {"num_kv_shared_layers": 2}, r"layers\.3\.\w+"),
    "experts without a number": ("gemma4-all", {"num_experts": None}, "num_experts: want a positive integer"),
    "more experts a token than there are": ("qwen3_moe", {"num_experts_per_tok": 9}, "num_experts: 9 of 8 experts"),
    "other experts": ("qwen3_moe", {"num_experts": 4}, r"mlp\.gate\.weight: want shape \[4, 64\]"),
    "no such rope": ("gemma3", {"rope_scaling": {"rope_type": "spiral"}}, "spiral"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_key_is_named(tiny: Tiny, tmp_path: Path, case: str) -> None:
    model, changes, text = CASES[case]
    folder = Path(shutil.copytree(tiny(f"{model}-f32"), tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    part = config.get("text_config", config)
    for key, value in changes.items():
        part.pop(key, None)
        if value is not None:
            part[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=text) as caught:
        axlm.load(folder)
    assert "\n" not in str(caught.value)
    whole, _ = axlm.utils.load_model(tiny(f"{model}-f32"))
    assert len(list(axlm.generate_step([1, 2], whole, max_tokens=2))) == 2
    whole.close()
