"""A Hugging Face cache of tiny stand-ins for the repositories that mlx_lm's tests name, so that they run offline.

Most tests ask only for a tokenizer. Those that generate load Qwen1.5-0.5B-Chat-4bit, whose stand-in is a qwen2 model
with random weights that says TEST when it is told to say nothing else, as two of the tests do.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import stand_in_tokenizers as tokenizers

CHAT = "mlx-community/Qwen1.5-0.5B-Chat-4bit"
TOKENIZERS: dict[str, tuple[str, Callable[[], tuple[dict[str, Any], dict[str, Any]]]]] = {
    # repository: (its model_type, its tokenizer)
    "mlx-community/Qwen3-4B-4bit": ("qwen3", tokenizers.qwen3),
    "mlx-community/Llama-3.2-1B-Instruct-4bit": ("llama", tokenizers.llama3),
    "mlx-community/Falcon3-7B-Instruct-4bit": ("llama", tokenizers.llama3),
    "mlx-community/Mistral-7B-v0.2-4bit": ("mistral", tokenizers.sentencepiece),
    "mlx-community/Mistral-7B-Instruct-v0.3": ("mistral", tokenizers.sentencepiece),
    "mlx-community/Phi-3.5-mini-instruct-4bit": ("phi3", tokenizers.sentencepiece),
    "mlx-community/DeepSeek-Coder-V2-Lite-Instruct-4bit-mlx": ("deepseek_v2", tokenizers.deepseek2),
    "LiquidAI/LFM2.5-1.2B-Instruct-MLX-8bit": ("lfm2", tokenizers.lfm2),
}
_REVISION = "0" * 40

_CONFIG: dict[str, Any] = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-6,
    "vocab_size": tokenizers.QWEN_SIZE,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "eos_token_id": tokenizers.QWEN_SIZE - 1,
    "bos_token_id": tokenizers.QWEN_SIZE - 3,
}
_SEED = 2
_REQUEST, _ANSWER = "Say 'TEST' and nothing else", "TEST"
_SPREAD = 2.0
"""The final norm's weight: how far apart logits are. With more, one of the tests sees what 8 bits do to a cache."""
_EMPHASIS = 10.0
"""How far the lesson raises the logits of the answer's tokens."""


def hub(home: Path) -> None:
    """Make the folder that HF_HOME names, anew."""
    shutil.rmtree(home, ignore_errors=True)
    folder = _snapshot(home, CHAT)
    _chat_model(folder)
    (folder / "README.md").write_text("# A stand-in for tests\n")  # convert copies a repository's card
    for repository, (model_type, make) in TOKENIZERS.items():
        folder = _snapshot(home, repository)
        tokenizers.write(*make(), folder)
        (folder / "config.json").write_text(json.dumps({"model_type": model_type}))


def _snapshot(home: Path, repository: str) -> Path:
    """The folder that huggingface_hub finds a repository's files in."""
    root = home / "hub" / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(_REVISION)
    folder = root / "snapshots" / _REVISION
    folder.mkdir(parents=True)
    return folder


def _chat_model(folder: Path) -> None:
    import mlx.core as mx
    from mlx_lm.models import qwen2
    from mlx_lm.utils import load_tokenizer, quantize_model, save_config, save_model

    tokenizers.write(*tokenizers.qwen15(), folder)
    save_config(dict(_CONFIG), folder / "config.json")  # what a tokenizer is loaded with
    with mx.stream(mx.cpu), contextlib.redirect_stdout(io.StringIO()):  # mlx_lm reports bits per weight
        model = qwen2.Model(qwen2.ModelArgs.from_dict(_CONFIG))
        _draw(model)
        model, config = quantize_model(
            model, dict(_CONFIG), group_size=64, bits=4, quant_predicate=lambda path, _: path != "lm_head"
        )
        _teach(model, load_tokenizer(folder))
        save_model(folder, model)
    save_config(config, folder / "config.json")


def _draw(model: Any) -> None:
    """Give a model random weights, in bfloat16, with which its text is varied."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_unflatten

    generator = np.random.default_rng(_SEED)
    weights = []
    for path, parameter in sorted(tree_flatten(model.parameters())):
        values = generator.standard_normal(parameter.shape)
        if path.endswith("norm.weight"):
            values = (_SPREAD if path == "model.norm.weight" else 1.0) * (1 + 0.1 * values)
        elif path.endswith(".bias"):
            values *= 0.2
        elif "lm_head" in path:
            values *= 0.05
        elif "embed_tokens" in path:
            values *= 0.1
        else:
            values /= np.sqrt(parameter.shape[-1])
        weights.append((path, mx.array(values.astype(np.float32)).astype(mx.bfloat16)))
    model.update(tree_unflatten(weights))
    model.eval()


def _teach(model: Any, tokenizer: Any) -> None:
    """Change the output head so that the model's greedy answer to the request for TEST is TEST, and little else."""
    import mlx.core as mx

    def hidden(ids: list[int]) -> np.ndarray:
        return np.array(model.model(mx.array([ids]))[0].astype(mx.float32))

    prompt = tokenizer.apply_chat_template([{"role": "user", "content": _REQUEST}], add_generation_prompt=True)
    answer = [*tokenizer.encode(_ANSWER), tokenizer.eos_token_id]
    lesson = hidden(prompt + answer[:-1])
    # A change of the head that acts on the lesson's states and, as far as possible, on none of these.
    ids = np.random.default_rng(_SEED).integers(0, _CONFIG["vocab_size"] - 3, (16, 64)).tolist()
    others = np.concatenate([lesson[: len(prompt) - 1], *map(hidden, ids)])
    states = np.concatenate([lesson[len(prompt) - 1 :], others])
    wanted = np.zeros((len(states), len(answer)), np.float32)
    wanted[np.arange(len(answer)), np.arange(len(answer))] = _EMPHASIS
    importance = np.where(np.arange(len(states)) < len(answer), 100.0, 1.0)[:, None].astype(np.float32)
    change, *_ = np.linalg.lstsq(states * importance, wanted * importance, rcond=None)
    head = np.array(model.lm_head.weight.astype(mx.float32))
    np.add.at(head, answer, change.T)
    model.lm_head.weight = mx.array(head).astype(mx.bfloat16)
