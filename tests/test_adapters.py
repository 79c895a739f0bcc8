"""Adapters that mlx_lm's tuner makes: the core applies them as mlx_lm does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from oracle import NEAR_TIE, first_difference, generated, prompt_of

Tiny = Callable[[str], Path]

PARAMETERS = {"rank": 4, "scale": 6.0, "dropout": 0.1}


def write(
    folder: Path,
    out: Path,
    *,
    kind: str = "lora",
    num_layers: int = -1,
    keys: list[str] | None = None,
    dtype: mx.Dtype = mx.float32,
    seed: int = 0,
) -> Path:
    """Save an adapter for a model folder with random numbers in it, as mlx_lm's trainer does."""
    import mlx_lm
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers

    model, _ = mlx_lm.load(str(folder))
    model.freeze()
    parameters = {**PARAMETERS, **({"keys": keys} if keys is not None else {})}
    config: dict[str, Any] = {"fine_tune_type": kind, "num_layers": num_layers, "lora_parameters": parameters}
    mx.random.seed(seed)
    if kind == "full":
        for layer in model.layers[-max(num_layers, 0) :]:
            layer.unfreeze()
        changed = {
            name: value * (1 + 0.2 * mx.random.normal(value.shape)).astype(value.dtype)
            for name, value in tree_flatten(model.trainable_parameters())
            if mx.issubdtype(value.dtype, mx.floating)
        }
    else:
        linear_to_lora_layers(model, num_layers, parameters, use_dora=kind == "dora")
        changed = {}
        for name, value in tree_flatten(model.trainable_parameters()):
            if name.endswith(".m"):
                changed[name] = value * (1 + 0.2 * mx.random.normal(value.shape))
            else:
                width = value.shape[0] if value.ndim == 2 else value.shape[-1]
                changed[name] = (0.5 * mx.random.normal(value.shape) / width**0.5).astype(dtype)
    assert changed
    out.mkdir(parents=True)
    (out / "adapter_config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(out / "adapters.safetensors"), changed)
    return out


def theirs(folder: Path, adapter: Path, prompt: list[int], tokens: int) -> tuple[list[int], list[float]]:
    """What mlx_lm generates with the adapter, and by how much each choice is ahead."""
    import mlx_lm
    from mlx_lm.generate import generate_step

    model, _ = mlx_lm.load(str(folder), adapter_path=str(adapter))
    ids, margins = [], []
    for token, logprobs in generate_step(mx.array(prompt), model, max_tokens=tokens):
        ids.append(int(token))
        best = mx.topk(logprobs.astype(mx.float32), 2)
        margins.append(abs((best[0] - best[1]).item()))
    return ids, margins


FLOAT32 = (
    ("llama-f32", {}),
    ("qwen3-f32", {"num_layers": 3, "keys": ["self_attn.q_proj", "mlp.down_proj", "model.embed_tokens"]}),
    ("llama-bias-f32", {"dtype": mx.float16}),
    ("qwen3_5_moe-f32", {}),
    ("gemma4-f32", {}),
    ("gemma4_moe-f32", {"keys": ["experts.switch_glu.gate_proj", "router.proj", "model.embed_tokens"]}),
    ("qwen3-f32", {"kind": "dora"}),
    ("llama-bias-f32", {"kind": "dora", "keys": ["self_attn.v_proj", "mlp.up_proj", "lm_head"]}),
    ("llama-tied-f32", {"kind": "dora", "keys": ["self_attn.o_proj", "model.embed_tokens"]}),
    ("qwen3_5-f32", {"kind": "dora"}),
    ("llama-f32", {"kind": "full", "num_layers": 2}),
    ("qwen3_5_moe-f32", {"kind": "full"}),
    ("gemma4-f32", {"kind": "full", "num_layers": 3}),
    ("qwen2-f32", {}),
    ("qwen3_moe-sparse-f32", {}),
    ("gemma3-f32", {}),
    ("gemma3-f32", {"kind": "full", "num_layers": 2}),
)


@pytest.mark.parametrize(("name", "how"), FLOAT32, ids=[f"{name} {how}" for name, how in FLOAT32])
def test_float32_tokens_are_those_of_mlx_lm(tiny: Tiny, tmp_path: Path, name: str, how: dict[str, Any]) -> None:
    folder = tiny(name)
    adapter = write(folder, tmp_path / "adapter", **how)
    prompt = prompt_of(folder, "text")
    expected, _ = theirs(folder, adapter, prompt, 64)
    model, _ = axlm.load(folder, adapter_path=str(adapter))
    found = generated(model, prompt, 64)
    assert first_difference(found, expected) is None
    assert found != generated(axlm.load(folder)[0], prompt, 64)
    assert generated(model, prompt, 64, ngram=True) == expected


def test_weights_as_published(tiny: Tiny, tmp_path: Path) -> None:
    """Experts stored one by one: low-rank adapters know them as mlx_lm stacks them; what replaces them is mlx_lm's."""
    folder = shutil.copytree(tiny("qwen3_moe-f32"), tmp_path / "published")
    weights = mx.load(str(folder / "model.safetensors"))
    for name in [name for name in weights if ".switch_mlp." in name]:
        stacked = weights.pop(name)
        for number in range(stacked.shape[0]):
            weights[name.replace("switch_mlp", f"experts.{number}")] = stacked[number]
    mx.eval(weights)
    (folder / "model.safetensors.index.json").unlink()
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    prompt = prompt_of(tiny("qwen3_moe-f32"), "text")
    adapter = write(folder, tmp_path / "adapter")
    expected, _ = theirs(folder, adapter, prompt, 32)
    assert generated(axlm.load(folder, adapter_path=adapter)[0], prompt, 32) == expected
    whole = write(folder, tmp_path / "whole", kind="full", num_layers=1)
    with pytest.raises(NotImplementedError, match="as published"):
        axlm.load(folder, adapter_path=whole, fallback=False)
    with pytest.warns(UserWarning, match="as published"):
        model, _ = axlm.load(folder, adapter_path=whole)
    assert generated(model, prompt, 32) == theirs(folder, whole, prompt, 32)[0]


QUANTISED = (
    ("qwen3-q4f32", {}),
    ("qwen3_5_moe-q4f32", {}),
    ("gemma4-q4f32", {"keys": ["self_attn.q_proj", "mlp.down_proj", "language_model.model.embed_tokens"]}),
    ("llama-bf16", {}),
    ("llama-q4", {"num_layers": 2}),
    ("qwen3-q4f32", {"kind": "dora"}),
    ("qwen3-bf16", {"kind": "dora"}),
    ("qwen3-q4f32", {"kind": "full"}),
)


@pytest.mark.parametrize(("name", "how"), QUANTISED, ids=[f"{name} {how}" for name, how in QUANTISED])
def test_quantised_bases_give_equal_tokens_up_to_near_ties(
    tiny: Tiny, tmp_path: Path, name: str, how: dict[str, Any]
) -> None:
    folder = tiny(name)
    adapter = write(folder, tmp_path / "adapter", **how)
    prompt = prompt_of(folder, "text")
    expected, margins = theirs(folder, adapter, prompt, 32)
    found = generated(axlm.load(folder, adapter_path=adapter)[0], prompt, 32)
    at = first_difference(found, expected)
    assert at is None or margins[at] < NEAR_TIE, (
        f"token {at}: {found[at]}, {expected[at]} is ahead by {margins[at]:.4f}"
    )


@pytest.mark.parametrize("name", ["llama-f32", "qwen3-bf16", "qwen3-q4f32", "qwen3_5_moe-f32", "gemma4-f32"])
def test_logits_are_those_of_mlx_lm(tiny: Tiny, tmp_path: Path, name: str) -> None:
    import mlx_lm

    folder = tiny(name)
    adapter = write(folder, tmp_path / "adapter")
    tokens = mx.array([prompt_of(folder, "text")[:24]])
    found = axlm.load(folder, adapter_path=adapter)[0](tokens)
    expected = mlx_lm.load(str(folder), adapter_path=str(adapter))[0](tokens)
    assert found.dtype == expected.dtype
    difference = mx.max(mx.abs((found - expected).astype(mx.float32))).item()
    assert difference <= (0.5 if "bf16" in name else 1e-3)


def test_the_model_counts_its_adapter(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny("qwen3-f32")
    adapter = write(folder, tmp_path / "adapter", num_layers=1, keys=["self_attn.q_proj"])
    plain, adapted = axlm.load(folder)[0], axlm.load(folder, adapter_path=adapter)[0]
    assert adapted.nbytes - plain.nbytes == 4 * 4 * (128 + 256)
    assert "adapter" in repr(adapted) and "adapter" not in repr(plain)


def test_a_loaded_model_is_given_adapters(tiny: Tiny, tmp_path: Path) -> None:
    from axlm.utils import load_adapters
    from mlx.utils import tree_flatten

    folder = tiny("qwen3-f32")
    prompt = prompt_of(folder, "text")
    one, other = write(folder, tmp_path / "1", seed=1), write(folder, tmp_path / "2", seed=2)
    model, _ = axlm.load(folder)
    stream = axlm.generate_step(prompt, model)
    next(stream)
    for adapter in (one, other):
        assert load_adapters(model, str(adapter)) is model
        assert generated(model, prompt, 24) == theirs(folder, adapter, prompt, 24)[0]
    with pytest.raises(ValueError, match="another adapter"):
        list(stream)
    (name,) = {
        name for name, _ in tree_flatten(model.parameters()) if name.endswith("layers.0.self_attn.q_proj.lora_a")
    }
    held = mx.load(str(other / "adapters.safetensors"))[name]
    assert mx.array_equal(dict(tree_flatten(model.parameters()))[name], held)
    assert "'" + str(other) + "'" in repr(model)
    with pytest.raises(FileNotFoundError):
        load_adapters(model, tmp_path / "absent")
    with pytest.raises(ValueError, match="does not fit"):
        load_adapters(model, write(tiny("llama-bias-f32"), tmp_path / "3", kind="full"))
    assert generated(model, prompt, 24) == theirs(folder, other, prompt, 24)[0]


# Errors


def changed(folder: Path, **config: Any) -> Path:
    """Change the adapter's configuration: values of keys, None to drop one."""
    file = folder / "adapter_config.json"
    values = json.loads(file.read_text())
    for key, value in config.items():
        target = values["lora_parameters"] if key in PARAMETERS or key in ("keys", "alpha") else values
        target.pop(key, None)
        if value is not None:
            target[key] = value
    file.write_text(json.dumps(values))
    return folder


def tensors(folder: Path, **arrays: mx.array | None) -> Path:
    """Change the adapter's tensors; underscores of the names stand for dots, doubled ones for underscores."""
    file = folder / "adapters.safetensors"
    held = dict(mx.load(str(file)))
    mx.eval(held)
    for name, value in arrays.items():
        name = name.replace("__", "\0").replace("_", ".").replace("\0", "_")
        held.pop(name, None)
        if value is not None:
            held[name] = value
    mx.save_safetensors(str(file), held)
    return folder


ZERO = "model_layers_5_self__attn_q__proj_lora__a"


def test_what_is_wrong_with_an_adapter_is_named(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny("qwen3-f32")
    count = 0

    def make(**how: Any) -> Path:
        nonlocal count
        count += 1
        return write(folder, tmp_path / str(count), num_layers=1, keys=["self_attn.q_proj"], **how)

    def refused(adapter: Path, error: type[Exception], *words: str) -> None:
        with pytest.raises(error) as caught:
            axlm.load(folder, adapter_path=adapter)
        assert all(word in str(caught.value) for word in words), caught.value

    refused(tmp_path / "absent", FileNotFoundError, "absent")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", FileNotFoundError, "adapter_config.json")
    adapter = make()
    (adapter / "adapters.safetensors").unlink()
    refused(adapter, FileNotFoundError, "adapters.safetensors")
    adapter = make()
    (adapter / "adapters.safetensors").write_bytes(b"\1\0\0\0\0\0\0\0{")
    refused(adapter, ValueError, "adapters.safetensors")
    adapter = make()
    (adapter / "adapter_config.json").write_text("{")
    refused(adapter, ValueError, "adapter_config.json")
    refused(changed(make(), scale=None), KeyError, "lora_parameters.scale")
    refused(changed(make(), scale=None, alpha=16), KeyError, "scale", "alpha")
    refused(changed(make(), rank=None), KeyError, "rank")
    refused(changed(make(), dropout=None), KeyError, "dropout")
    refused(changed(make(), rank="4"), ValueError, "rank")
    refused(changed(make(), num_layers=None), ValueError, "num_layers")
    refused(changed(make(), lora_parameters=None), ValueError, "lora_parameters")
    refused(changed(make(), fine_tune_type="ia3"), ValueError, "fine_tune_type", "ia3")
    name = "model.layers.5.self_attn.q_proj.lora_"
    refused(changed(make(), rank=8), ValueError, name + "a", name + "b", "[128, 8]", "[128, 4]")
    refused(changed(make(), keys=["mlp.up_proj"]), ValueError, name + "a", "keys")
    refused(tensors(make(), **{ZERO: None}), ValueError, name + "a", "missing")
    refused(tensors(make(), **{ZERO: mx.zeros((64, 4))}), ValueError, name + "a", "[64, 4]")
    refused(tensors(make(), **{ZERO: mx.zeros((128, 4), mx.int32)}), ValueError, name + "a", "I32")
    foreign = "model_layers_9_self__attn_q__proj_lora__a"
    refused(tensors(make(), **{foreign: mx.zeros((128, 4))}), ValueError, "model.layers.9", "no such")
    refused(tensors(make(), vision_tower_lora__a=mx.zeros((128, 4))), ValueError, "vision.tower.lora_a")
    full = write(folder, tmp_path / "full", kind="full", num_layers=1)
    refused(tensors(full, model_norm_weight=mx.zeros(64)), ValueError, "model.norm.weight", "[64]")
    refused(tensors(full, model_norm_weight=None, model_norm_bias=mx.zeros(64)), ValueError, "model.norm.bias")
    # The next call works.
    model, _ = axlm.load(folder, adapter_path=make())
    assert len(generated(model, [1, 2, 3], 4)) == 4


def test_experts_have_no_dora(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny("qwen3_5_moe-f32")
    adapter = write(folder, tmp_path / "adapter", keys=["mlp.switch_mlp.gate_proj"])
    with pytest.raises(ValueError, match=r"switch_mlp\.gate_proj.*DoRA"):
        axlm.load(folder, adapter_path=changed(adapter, fine_tune_type="dora"))


def test_the_command_takes_an_adapter(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from axlm import cli

    folder = tiny("qwen3-f32")
    words = ["generate", "--model", str(folder), "-p", "hello", "-m", "20", "--verbose", "F"]
    assert cli.main(words) == 0
    plain = capsys.readouterr().out
    adapter = write(folder, tmp_path / "adapter")
    capsys.readouterr()
    assert cli.main([*words, "--adapter-path", str(adapter)]) == 0
    text = capsys.readouterr().out
    model, tokenizer = axlm.load(folder, adapter_path=adapter)
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], add_generation_prompt=True)
    assert text == axlm.generate(model, tokenizer, prompt, max_tokens=20) + "\n" != plain
    assert cli.main([*words, "--adapter-path", str(tmp_path / "absent")]) == 2
    assert "absent" in capsys.readouterr().err
