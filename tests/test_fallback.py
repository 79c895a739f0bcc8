"""Models that the core does not run: mlx_lm loads them and generates, behind the same calls, with one warning."""

from __future__ import annotations

import importlib
import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import pytest
from axlm.generate import generate_step, stream_generate, wired_limit
from axlm.model import Model
from axlm.sample_utils import make_logits_processors, make_sampler
from axlm.utils import load_model
from fixtures import other_families
from mlx_lm.generate import generate_step as their_steps
from mlx_lm.models import cache

Tiny = Callable[[str], Path]
PROMPT = "hello, how are you?"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of a family that the core lacks."""
    root = tmp_path_factory.mktemp("other")
    return lambda name: other_families.write(name, root / name)


@pytest.fixture(scope="module", params=["gpt2", "mamba"])
def pair(request: pytest.FixtureRequest, folders: Callable[[str], Path]) -> Iterator[tuple[Any, Any, Any]]:
    """(model from axlm.load, tokenizer, mlx_lm's own model)."""
    folder = folders(request.param)
    with pytest.warns(UserWarning):
        model, tokenizer = axlm.load(folder)
    yield model, tokenizer, mlx_lm.load(str(folder))[0]


def ids(model: Any, tokenizer: Any, **options: Any) -> list[int]:
    return [token for token, _ in generate_step(tokenizer.encode(PROMPT), model, max_tokens=40, **options)]


def their_ids(model: Any, tokenizer: Any, **options: Any) -> list[int]:
    prompt = mx.array(tokenizer.encode(PROMPT))
    return [int(token) for token, _ in their_steps(prompt, model, max_tokens=40, **options)]


# Loading


def test_another_family_is_loaded_with_one_warning(folders: Callable[[str], Path]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, tokenizer, config = axlm.load(folders("gpt2"), return_config=True)
    ours = [warning for warning in caught if warning.category is UserWarning]
    assert len(ours) == 1 and ours[0].filename == __file__
    assert "gpt2" in str(ours[0].message) and "mlx_lm" in str(ours[0].message)
    assert isinstance(model, nn.Module) and config["model_type"] == "gpt2"
    assert tokenizer.eos_token_ids == {1, 4}


def test_without_fallback_the_families_are_listed(folders: Callable[[str], Path]) -> None:
    for load in (axlm.load, load_model):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ValueError, match=r"gpt2.*gemma4.*llama.*qwen3_5_moe"):
                load(folders("gpt2"), fallback=False)


def test_a_family_that_nobody_has(folders: Callable[[str], Path], tmp_path: Path) -> None:
    folder = other_families.write("gpt2", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gpt17"}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"gpt17.*llama.*mlx_lm cannot load it either"):
            axlm.load(folder)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_models_own_code_needs_leave(folders: Callable[[str], Path], tiny: Tiny, tmp_path: Path, family: str) -> None:
    if family == "gpt2":
        folder = other_families.write("gpt2", tmp_path / "model")
    else:  # the core has the family, but the code may compute something else
        folder = tmp_path / "model"
        folder.mkdir()
        for file in tiny("llama-nano-f32").iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    other_families.write_own_code(folder)
    with pytest.raises(ValueError, match=other_families.OWN_CODE):
        axlm.load(folder)
    with pytest.warns(UserWarning, match=f"{family}.*model_file"):
        model, tokenizer = axlm.load(folder, trust_remote_code=True)
    assert type(model).__module__ == f"mlx_lm.models.{family}"
    leave = {"trust_remote_code": True} if "trust_remote_code" in inspect.signature(mlx_lm.load).parameters else {}
    expected = their_ids(mlx_lm.load(str(folder), **leave)[0], tokenizer)
    assert ids(model, tokenizer) == expected


def test_adapters_are_applied_as_mlx_lm_does(folders: Callable[[str], Path], tmp_path: Path) -> None:
    from mlx.utils import tree_flatten
    from mlx_lm.tuner.utils import linear_to_lora_layers

    folder = folders("gpt2")
    parameters = {"rank": 4, "scale": 8.0, "dropout": 0.0, "keys": ["attn.c_proj"]}
    changed, tokenizer = mlx_lm.load(str(folder))
    plain = their_ids(changed, tokenizer)
    changed.freeze()
    linear_to_lora_layers(changed, 3, parameters)
    mx.random.seed(3)
    weights = {name: mx.random.normal(array.shape) for name, array in tree_flatten(changed.trainable_parameters())}
    mx.save_safetensors(str(tmp_path / "adapters.safetensors"), weights)
    config = {"fine_tune_type": "lora", "num_layers": 3, "lora_parameters": parameters}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    with pytest.warns(UserWarning):
        model, tokenizer = axlm.load(folder, adapter_path=str(tmp_path))
    expected = their_ids(mlx_lm.load(str(folder), adapter_path=str(tmp_path))[0], tokenizer)
    assert ids(model, tokenizer) == expected != plain


def test_what_the_core_cannot_do_for_its_own_families_is_left_to_mlx_lm(tiny: Tiny) -> None:
    changes = {"quantize_activations": True}
    folder = tiny("qwen3-mxfp8")
    with pytest.raises(NotImplementedError, match="quantize_activations"):
        axlm.load(folder, model_config=changes, fallback=False)
    with pytest.warns(UserWarning, match=r"qwen3.*quantize_activations"):
        model, tokenizer = axlm.load(folder, model_config=changes)
    assert any(isinstance(module, nn.QQLinear) for module in model.modules())
    assert model.model_type == "qwen3" and tokenizer.has_chat_template


def test_classes_of_the_users_are_mlx_lms(tiny: Tiny) -> None:
    from mlx_lm.models import llama

    folder = tiny("llama-nano-f32")
    for options in ({"get_model_classes": lambda config: (llama.Model, llama.ModelArgs)}, {"strict": False}):
        with pytest.warns(UserWarning, match=next(iter(options))):
            model, config = load_model(folder, **options)
        assert isinstance(model, llama.Model) and config["model_type"] == "llama"
        with pytest.raises(NotImplementedError, match=next(iter(options))):
            load_model(folder, **options, fallback=False)


# Generating


def test_tokens_and_log_probabilities_are_those_of_mlx_lm(pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, theirs = pair
    prompt = tokenizer.encode(PROMPT)
    steps = list(generate_step(prompt, model, max_tokens=20))
    expected = list(their_steps(mx.array(prompt), theirs, max_tokens=20))
    assert [token for token, _ in steps] == [token for token, _ in expected]
    assert all(mx.array_equal(ours, other) for (_, ours), (_, other) in zip(steps, expected, strict=True))
    assert ids(model, tokenizer, prefill_step_size=3, ngram=False) == their_ids(theirs, tokenizer, prefill_step_size=3)


def test_responses_are_ours(pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, theirs = pair
    got = list(stream_generate(model, tokenizer, PROMPT, max_tokens=12))
    expected = list(mlx_lm.stream_generate(theirs, tokenizer, PROMPT, max_tokens=12))
    assert all(type(response) is axlm.GenerationResponse for response in got)
    for name in ("text", "token", "from_draft", "prompt_tokens", "generation_tokens", "finish_reason"):
        assert [getattr(response, name) for response in got] == [getattr(response, name) for response in expected]
    assert got[-1].stats is None
    assert axlm.generate(model, tokenizer, PROMPT, max_tokens=12) == "".join(response.text for response in got)


def test_batches_are_those_of_mlx_lm(pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, theirs = pair
    prompts = [tokenizer.encode(text) for text in (PROMPT, "def main():")]
    options = {"max_tokens": [9, 5], "return_token_ids": True}
    got = axlm.batch_generate(model, tokenizer, prompts, **options)
    expected = mlx_lm.batch_generate(theirs, tokenizer, prompts, **options)
    assert (got.texts, got.token_ids) == (expected.texts, expected.token_ids)
    assert type(got).__module__.startswith("axlm")


def test_seeded_samples_are_those_of_mlx_lm(pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, theirs = pair
    results = []
    for generate, module in ((ids, model), (their_ids, theirs)):
        mx.random.seed(7)
        sampler = make_sampler(0.8, top_p=0.9)
        results.append(
            generate(module, tokenizer, sampler=sampler, logits_processors=make_logits_processors({3: 2.0}, 1.2))
        )
    assert results[0] == results[1]


def test_prompts_come_in_every_form(pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, _ = pair
    prompt = tokenizer.encode(PROMPT)
    expected = axlm.generate(model, tokenizer, prompt, max_tokens=5)
    for same in (PROMPT, tuple(prompt), mx.array(prompt)):
        assert axlm.generate(model, tokenizer, same, max_tokens=5) == expected
    for wrong, error in (([], ValueError), ([0.5], TypeError)):
        with pytest.raises(error):
            axlm.generate(model, tokenizer, wrong, max_tokens=5)


def test_caches_are_mlx_lms(folders: Callable[[str], Path]) -> None:
    with pytest.warns(UserWarning):
        model, tokenizer = axlm.load(folders("gpt2"))
    prompt = tokenizer.encode(PROMPT)
    whole = [token for token, _ in generate_step(prompt + prompt, model, max_tokens=8)]
    prompt_cache = cache.make_prompt_cache(model)
    assert not list(generate_step(prompt, model, max_tokens=0, prompt_cache=prompt_cache))
    steps = generate_step(prompt, model, max_tokens=8, prompt_cache=prompt_cache)
    assert [token for token, _ in steps] == whole
    assert prompt_cache[0].offset == 2 * len(prompt) + 8
    for options in ({"kv_bits": 8, "quantized_kv_start": 0, "kv_group_size": 32}, {"max_kv_size": 16}):
        assert len(ids(model, tokenizer, **options)) == 40


@pytest.mark.parametrize("ngram", [True, False, None, {"max_draft_tokens": 2}, axlm.NgramConfig(adaptive=False)])
def test_speculation_is_left_out(pair: tuple[Any, Any, Any], ngram: Any) -> None:
    model, tokenizer, theirs = pair
    assert ids(model, tokenizer, ngram=ngram) == their_ids(theirs, tokenizer)


def test_wrong_settings_of_speculation_are_named_all_the_same(pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, _ = pair
    with pytest.raises(ValueError, match="depth"):
        ids(model, tokenizer, ngram={"depth": 3})
    with pytest.raises(ValueError, match="depth"):
        axlm.generate(model, tokenizer, PROMPT, ngram={"depth": 3})


def test_a_draft_model_of_mlx_lms_drafts(folders: Callable[[str], Path]) -> None:
    folder = folders("gpt2")
    with pytest.warns(UserWarning):
        model, tokenizer = axlm.load(folder)
    draft, _ = mlx_lm.load(str(folder))
    options = {"max_tokens": 20, "num_draft_tokens": 3}
    got = list(stream_generate(model, tokenizer, PROMPT, draft_model=draft, **options))
    assert any(response.from_draft for response in got)
    assert "".join(response.text for response in got) == axlm.generate(model, tokenizer, PROMPT, max_tokens=20)


def test_any_module_is_served(tiny: Tiny) -> None:
    """Also one that mlx_lm loaded, or that the user made."""
    folder = tiny("llama-nano-f32")
    theirs, tokenizer = mlx_lm.load(str(folder))
    expected = their_ids(theirs, tokenizer)
    assert ids(theirs, tokenizer) == expected

    class Around:
        layers = theirs.layers

        def __call__(self, *args: Any, **options: Any) -> mx.array:
            return theirs(*args, **options)

    assert ids(Around(), tokenizer) == expected
    ours, _ = axlm.load(folder)
    assert isinstance(ours, Model) and ids(ours, tokenizer) == expected


def test_what_is_no_model_is_named() -> None:
    for call in (lambda: next(generate_step([1], "model")), lambda: axlm.generate(None, None, [1])):
        with pytest.raises(TypeError, match=r"axlm\.load"):
            call()


def test_a_closed_generator_ends_mlx_lms(pair: tuple[Any, Any, Any]) -> None:
    model, tokenizer, _ = pair
    for stream in (
        generate_step(tokenizer.encode(PROMPT), model),
        stream_generate(model, tokenizer, PROMPT),
    ):
        next(stream)
        stream.close()
    assert len(ids(model, tokenizer)) == 40


def test_the_wired_limit_is_mlx_lms(pair: tuple[Any, Any, Any], tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its own models, with the streams; the core sets none for those that it runs."""
    heard: list[Any] = []

    @contextmanager
    def limit(*arguments: Any) -> Iterator[None]:
        heard.append(arguments)
        try:
            yield
        finally:
            heard.append("left")

    monkeypatch.setattr(importlib.import_module("mlx_lm.generate"), "wired_limit", limit)
    streams = [mx.default_stream(mx.default_device())]
    with wired_limit(pair[0], streams):
        assert heard == [(pair[0], streams)]
    assert heard.pop() == "left"
    with pytest.raises(ZeroDivisionError), wired_limit(pair[0]):
        raise ZeroDivisionError
    assert heard == [(pair[0], streams), (pair[0], None), "left"]
    heard.clear()
    model, _ = axlm.load(tiny("llama-nano-f32"))
    with wired_limit(model, streams):
        assert heard == []
    model.close()
