"""What scripts ask of a model as a module: layers, args, parameters, casts, caches; compared with mlx_lm's own."""

from __future__ import annotations

import copy
import gc
import io
import json
import logging
import pickle
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import pytest
from axlm import _bridge, _module
from axlm._crossing import address
from axlm.model import Model
from fixtures import tiny_models
from mlx.utils import tree_flatten, tree_map
from mlx_lm.generate import generate_step
from mlx_lm.models import cache as mlx_cache
from mlx_lm.utils import compute_bits_per_weight, get_total_parameters, save_model
from oracle import generated, ours, prompt_of, theirs
from test_adapters import write as write_adapter

Tiny = Callable[[str], Path]

NAMES = (
    *(f"{family}-f32" for family in tiny_models.FAMILIES),
    *(f"{family}-q4" for family in tiny_models.FAMILIES),
    "qwen3-bf16",
    "qwen3-untied-f32",
    "qwen3-mixed46",
    "qwen3-nvfp4",
    "llama-bias-f32",
    "llama-longrope-f32",
)


@pytest.fixture(params=NAMES)
def folder(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    return tiny(request.param)


@pytest.fixture(params=tiny_models.FAMILIES)
def family(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    return tiny(f"{request.param}-f32")


def weights(model: Any) -> dict[str, mx.array]:
    return dict(tree_flatten(model.parameters()))


def check_same_weights(mine: Any, other: Any) -> None:
    found, wanted = weights(mine), weights(other)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype), name
        assert mx.array_equal(found[name], array).item(), name


def place(array: mx.array) -> int:
    """The address of an array's elements."""
    return json.loads(_bridge._loaded().functions.array_probe(address(array)))["data"]


# What a model is


def test_a_model_is_a_module_of_its_family(folder: Path) -> None:
    (model, _), (other, _) = ours(folder), theirs(folder)
    assert isinstance(model, Model) and isinstance(model, type(other)) and isinstance(model, nn.Module)
    assert model.args == other.args and model.model_type == other.model_type
    assert len(model.layers) == len(other.layers) == len(list(model.layers))
    for mine, layer in zip(model.layers, other.layers, strict=True):
        assert isinstance(mine, type(layer))
    for name in ("make_cache", "head_dim", "n_kv_heads", "quant_predicate", "cast_predicate"):
        assert hasattr(model, name) == hasattr(other, name), name
    for name in ("head_dim", "n_kv_heads"):
        assert getattr(model, name, None) == getattr(other, name, None)
    assert [type(part).__name__ for part in model.modules()[1:]] == [
        type(part).__name__ for part in other.modules()[1:]
    ]


def test_a_model_is_an_object_of_its_own(tiny: Tiny) -> None:
    a, _ = axlm.load(tiny("qwen3-f32"))
    b, _ = axlm.load(tiny("qwen3-f32"))
    assert a == a and a != b and bool(a) and len({a, b, a}) == 2
    assert repr(a).startswith("<axlm.Model qwen3,") and type(a).__name__ == "Model"
    assert not hasattr(a, "_repr_html_") and not hasattr(a, "nothing")
    a.name = "mine"
    a.config = {"model_type": "qwen3"}
    assert a.name == "mine" and "config" not in a.parameters()
    for model in (a, b):
        model.close()


def test_a_model_cannot_be_copied(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            duplicate(model)


def test_loading_draws_what_it_draws_in_mlx_lm(folder: Path) -> None:
    states = []
    for load in (mlx_lm.load, axlm.load):
        mx.random.seed(11)
        load(str(folder))
        states.append(mx.random.state[0].tolist())
    assert states[0] == states[1]


def test_mlx_lm_generates_with_it(family: Path) -> None:
    model, tokenizer = ours(family)
    other, _ = theirs(family)
    prompt = prompt_of(family, "chat")
    text = mlx_lm.generate(model, tokenizer, prompt, max_tokens=16)
    assert text == mlx_lm.generate(other, tokenizer, prompt, max_tokens=16) != ""


# Weights


def test_parameters_are_those_of_mlx_lm(folder: Path) -> None:
    check_same_weights(ours(folder)[0], theirs(folder)[0])


@pytest.mark.zero_copy
def test_all_parameters_are_the_core_s(folder: Path) -> None:
    model, _ = axlm.load(folder)
    mx.clear_cache()
    before = mx.get_active_memory()
    found = weights(model)
    grown = mx.get_active_memory() - before
    assert set(_bridge.parameters(model.handle, list(found))) == set(found)
    again = _bridge.parameters(model.handle, list(found))
    assert found and all(place(array) == place(again[name]) for name, array in found.items())
    assert grown < 64 * len(found)  # the scalars that the arrays were before
    model.close()


def test_a_model_read_lazily_gives_its_weights(tiny: Tiny) -> None:
    for name in ("qwen3-q4", "gemma4-f32"):
        model, _ = axlm.load(tiny(name), lazy=True)
        assert len(generated(model, [1, 2, 3], 4)) == 4
        check_same_weights(model, theirs(tiny(name))[0])
        model.close()
        model, _ = axlm.load(tiny(name), lazy=True)
        mx.eval(model.parameters())
        check_same_weights(model, theirs(tiny(name))[0])
        model.close()


def test_sizes(folder: Path) -> None:
    (model, _), (other, _) = ours(folder), theirs(folder)
    assert axlm.utils.get_total_parameters is get_total_parameters
    assert get_total_parameters(model) == get_total_parameters(other)
    assert compute_bits_per_weight(model) == compute_bits_per_weight(other)
    mx.eval(model)
    assert tree_map(lambda a: a.nbytes, model.parameters()) == tree_map(lambda a: a.nbytes, other.parameters())


def test_weights_can_be_saved(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny("llama-q4")
    model, other = ours(folder)[0], theirs(folder)[0]
    save_model(tmp_path, model)
    model.save_weights(str(tmp_path / "weights.safetensors"))
    for file in ("model.safetensors", "weights.safetensors"):
        saved = mx.load(str(tmp_path / file))
        wanted = weights(other)
        assert saved.keys() == wanted.keys()
        assert all(mx.array_equal(saved[name], array).item() for name, array in wanted.items())


def test_where_the_layout_does_not_hold_weights_are_copied(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny("qwen3-q4")
    model, _ = axlm.load(folder)
    monkeypatch.setattr(_bridge._loaded().arrays, "_direct", False)
    assert not _bridge.parameters(model.handle, ["model.nothing.weight"])
    assert set(_bridge.parameters(model.handle, ["model.norm.weight", "nothing"])) == {"model.norm.weight"}
    check_same_weights(model, theirs(folder)[0])
    model.close()


def test_embeddings_and_layers_compute_what_mlx_lm_s_do(folder: Path) -> None:
    (model, _), (other, _) = ours(folder), theirs(folder)

    def table(module: Any) -> Any:
        return getattr(module, "language_model", module).model.embed_tokens

    ids = mx.array([[1, 5, 900], [0, 3, 7]])
    rows = table(model)(ids)
    assert mx.array_equal(rows, table(other)(ids)).item()
    assert mx.array_equal(table(model)([4, 2]), table(other)([4, 2])).item()
    assert mx.array_equal(table(model).as_linear(rows), table(other).as_linear(rows)).item()
    norm = model.layers[0].input_layernorm
    assert mx.array_equal(norm(rows), other.layers[0].input_layernorm(rows)).item()


def test_input_embeddings_from_the_table(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = ours(folder)
    prompt = prompt_of(folder, "chat")
    embeddings = model.model.embed_tokens(mx.array(prompt))
    assert generated(model, prompt, 8, input_embeddings=embeddings) == generated(model, prompt, 8)


# Casts


@pytest.fixture(params=[f"{family}-{form}" for family in tiny_models.FAMILIES for form in ("bf16", "q4")])
def rounded(request: pytest.FixtureRequest, tiny: Tiny) -> Path:
    return tiny(request.param)


def test_set_dtype(rounded: Path) -> None:
    (model, _), (other, _) = axlm.load(rounded), mlx_lm.load(str(rounded))
    prompt = prompt_of(rounded, "chat")
    held = weights(model)
    size = model.nbytes
    assert model.set_dtype(mx.float32) is None
    other.set_dtype(mx.float32)
    check_same_weights(model, other)
    assert model.nbytes > size
    assert {array.dtype for array in held.values()} != {array.dtype for array in weights(model).values()}
    wanted = [token for token, _ in generate_step(mx.array(prompt), other, max_tokens=24)]
    assert generated(model, prompt, 24) == wanted
    assert model(mx.array([prompt])).dtype == mx.float32
    model.close()


def test_set_dtype_goes_by_the_predicate(tiny: Tiny) -> None:
    folder = tiny("qwen3_5-bf16")  # A_log is float32
    (model, _), (other, _) = axlm.load(folder), mlx_lm.load(str(folder))
    for predicate in (lambda dtype: dtype == mx.float32, lambda dtype: False, lambda dtype: dtype == mx.bfloat16, None):
        model.set_dtype(mx.float16, predicate)
        other.set_dtype(mx.float16, predicate)
        check_same_weights(model, other)
    model.close()


def test_set_dtype_before_anything_looked(tiny: Tiny) -> None:
    folder = tiny("llama-bf16")
    (model, _), (other, _) = axlm.load(folder, lazy=True), mlx_lm.load(str(folder))
    model.set_dtype(mx.float32)
    other.set_dtype(mx.float32)
    check_same_weights(model, other)
    model.close()


def test_set_dtype_refuses_what_is_no_weight_s_dtype(tiny: Tiny) -> None:
    model, _ = axlm.load(tiny("qwen3-q4"))
    before = generated(model, [1, 2, 3], 8)
    for dtype, predicate, words in (
        (mx.int32, lambda dtype: True, "packed"),
        (mx.int32, lambda dtype: dtype == mx.bfloat16, "float16, bfloat16 or float32, not int32"),
        (mx.float32, None, "uint32 are packed"),
        (mx.float32, lambda dtype: dtype == mx.uint32, "uint32 are packed"),
    ):
        with pytest.raises(ValueError, match=words):
            model.set_dtype(dtype, predicate)
    assert generated(model, [1, 2, 3], 8) == before
    model.close()


def test_set_dtype_ends_running_requests(tiny: Tiny) -> None:
    model, _ = axlm.load(tiny("qwen3-bf16"))
    running = axlm.generate_step([1, 2, 3], model, max_tokens=100_000)
    next(running)
    model.set_dtype(mx.float32)
    with pytest.raises(ValueError, match="another dtype"):
        for _ in running:
            pass
    assert len(generated(model, [1, 2, 3], 4)) == 4
    model.close()


def test_a_cache_of_another_dtype_goes_on(tiny: Tiny) -> None:
    folder = tiny("qwen3-bf16")
    (model, _), (other, _) = axlm.load(folder), mlx_lm.load(str(folder))
    prompt = prompt_of(folder, "chat")
    mine, wanted = mlx_cache.make_prompt_cache(model), mlx_cache.make_prompt_cache(other)
    generated(model, prompt, 4, prompt_cache=mine)
    list(generate_step(mx.array(prompt), other, max_tokens=4, prompt_cache=wanted))
    model.set_dtype(mx.float32)
    other.set_dtype(mx.float32)
    expected = [token for token, _ in generate_step(mx.array(prompt[:9]), other, max_tokens=12, prompt_cache=wanted)]
    assert generated(model, prompt[:9], 12, prompt_cache=mine) == expected
    model.close()


# Adapters


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in ("llama-bf16", "qwen3-q4") for kind in ("lora", "dora", "full")),
        ("qwen3_5_moe-q4", "lora"),  # mlx_lm has no DoRA for experts
        ("qwen3_5_moe-q4", "full"),
    ],
)
def test_a_model_with_an_adapter(tiny: Tiny, tmp_path: Path, name: str, kind: str) -> None:
    folder = tiny(name)
    adapter = write_adapter(folder, tmp_path / "adapter", kind=kind)
    (model, _), (other, _) = (load(str(folder), adapter_path=str(adapter)) for load in (axlm.load, mlx_lm.load))
    for _ in range(2):
        check_same_weights(model, other)
        places = {
            name.replace(".linear.", ".").replace(".embedding.", "."): array for name, array in weights(model).items()
        }
        arrays = _bridge.parameters(model.handle, list(places))
        assert places and arrays.keys() >= places.keys()
        if _bridge._loaded().arrays.direct:
            assert all(place(array) == place(arrays[name]) for name, array in places.items())
        model.set_dtype(mx.float32)
        other.set_dtype(mx.float32)
    prompt = prompt_of(folder, "chat")
    wanted = [token for token, _ in generate_step(mx.array(prompt), other, max_tokens=16)]
    assert generated(model, prompt, 16) == wanted
    model.close()


# Caches


@pytest.mark.parametrize("size", [None, 64])
def test_prompt_caches_are_those_of_mlx_lm(folder: Path, size: int | None) -> None:
    def described(model: Any) -> list[tuple[Any, ...]]:
        caches = mlx_cache.make_prompt_cache(model, size)
        return [(type(c), *(getattr(c, name, None) for name in ("max_size", "keep", "step", "offset"))) for c in caches]

    assert described(ours(folder)[0]) == described(theirs(folder)[0])


def test_a_replaced_make_cache_counts(tiny: Tiny) -> None:
    for name in ("qwen3-f32", "llama-f32"):  # mlx_lm has a make_cache for the second
        model, _ = axlm.load(tiny(name))
        before = [type(c) for c in mlx_cache.make_prompt_cache(model)]
        model.make_cache = lambda model=model: [mlx_cache.RotatingKVCache(max_size=4) for _ in model.layers]
        assert {c.max_size for c in mlx_cache.make_prompt_cache(model)} == {4}
        del model.make_cache
        assert [type(c) for c in mlx_cache.make_prompt_cache(model)] == before
        model.close()


# What has no effect, and what is refused


def test_modes_and_freezing_change_nothing(tiny: Tiny) -> None:
    folder = tiny("qwen3-f32")
    model, _ = axlm.load(folder)
    before = generated(model, [1, 2, 3], 8)
    assert model.eval() is model and not model.training
    assert model.train() is model and model.training and model.layers[0].training
    model.freeze()
    assert tree_flatten(model.trainable_parameters()) == []
    model.unfreeze()
    assert len(tree_flatten(model.trainable_parameters())) == len(weights(model))
    assert generated(model, [1, 2, 3], 8) == before
    model.close()


def loss(model: Any) -> mx.array:
    return model(mx.array([[1, 2]])).sum()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "update": lambda model: model.update(model.parameters()),
    "apply": lambda model: model.apply(lambda array: array * 2),
    "load_weights": lambda model: model.load_weights(list(weights(model).items())),
    "update_modules": lambda model: model.update_modules({"model": {}}),
    "quantize": lambda model: nn.quantize(model, group_size=32),
    "value_and_grad": lambda model: nn.value_and_grad(model, loss)(model),
    "a weight": lambda model: setattr(model.layers[0].mlp.up_proj, "weight", mx.zeros((256, 128))),
    "a weight's item": lambda model: model.layers[0].mlp.up_proj.update({"weight": mx.zeros((256, 128))}),
    "a layer": lambda model: setattr(model.layers[0], "self_attn", nn.Linear(4, 4)),
    "a layer's number": lambda model: setattr(model.layers[0].self_attn, "scale", 1.0),
    "a layer's attribute": lambda model: delattr(model.layers[0], "mlp"),
    "layers": lambda model: setattr(model.model, "layers", model.model.layers[:1]),
    "the list": lambda model: model.model.layers.pop(),
    "the list's item": lambda model: model.layers.__setitem__(0, model.layers[1]),
    "the list's end": lambda model: model.layers.append(model.layers[0]),
    "the list's part": lambda model: model.layers.__delitem__(slice(1, None)),
    "the model": lambda model: setattr(model, "model", model.model),
    "the model's item": lambda model: model.__setitem__("model", model.model),
    "the model's end": lambda model: delattr(model, "model"),
    "the model's item's end": lambda model: model.__delitem__("model"),
    "a new module": lambda model: setattr(model, "value_head", nn.Linear(4, 4)),
}


@pytest.mark.parametrize("looked_into", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_are_refused(tiny: Tiny, change: Callable[[Any], Any], looked_into: bool) -> None:
    folder = tiny("qwen3-nano-f32")
    model, _ = axlm.load(folder)
    before = generated(model, [1, 2, 3], 8)
    if looked_into:
        model.parameters()
    with pytest.raises(NotImplementedError, match=r"cannot be changed: the core runs this model"):
        change(model)
    check_same_weights(model, theirs(folder)[0])
    assert generated(model, [1, 2, 3], 8) == before
    model.close()


def test_a_copy_of_a_layer_can_be_changed(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    other, _ = theirs(tiny("qwen3-f32"))
    layer, layers = copy.deepcopy(model.layers[0]), copy.deepcopy(model.layers)
    assert type(layer) is type(other.layers[0]) and type(layers) is list
    assert mx.array_equal(layer.mlp.up_proj.weight, model.layers[0].mlp.up_proj.weight).item()
    layer.mlp.up_proj.weight = mx.zeros((256, 128))
    layers.pop()
    with redirect_stdout(io.StringIO()):
        print(layer)  # a module's repr goes through its children
    assert len(layers) == len(model.layers) - 1
    check_same_weights(model, other)


# The end


def test_a_closed_model_gives_its_memory_back(tiny: Tiny) -> None:
    gc.collect()
    before = mx.get_active_memory()
    model, _ = axlm.load(tiny("qwen3-f32"))
    assert weights(model) and mx.get_active_memory() > before + model.nbytes // 2
    model.close()
    gc.collect()
    assert mx.get_active_memory() < before + 100_000
    assert not hasattr(model, "layers")
    with pytest.raises(AttributeError, match=r"this model is closed"):
        _ = model.layers
    with pytest.raises(ValueError, match=r"this model is closed"):
        model.set_dtype(mx.float32)
    assert "closed" in repr(model) and not model.parameters()


def test_a_model_that_is_forgotten_gives_its_memory_back(tiny: Tiny) -> None:
    gc.collect()
    before = mx.get_active_memory()
    model, _ = axlm.load(tiny("qwen3-f32"))
    assert weights(model)
    del model
    gc.collect()
    assert mx.get_active_memory() < before + 100_000


def test_a_folder_that_mlx_lm_cannot_load_still_generates(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("no such form of weights")

    monkeypatch.setattr(_module, "build", fail)
    with caplog.at_level(logging.WARNING, "axlm"):
        model, _ = axlm.load(tiny("qwen3-f32"))
    assert "no such form of weights" in caplog.text
    assert not isinstance(model, nn.Module) and not hasattr(model, "layers")
    assert generated(model, [1, 2, 3], 8) == generated(ours(tiny("qwen3-f32"))[0], [1, 2, 3], 8)
    model.close()
