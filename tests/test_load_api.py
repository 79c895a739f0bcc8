"""load, load_model and Model on a fake core."""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from axlm import _bridge, _progress, load, utils
from axlm.model import Model
from fake_native import FakeNative, Tokenizer, core_error, fake_core, fake_model

native = pytest.fixture(fake_core)
model = pytest.fixture(fake_model)

CONFIG = {"model_type": "llama", "vocab_size": 100, "rope_scaling": {"factor": 8.0}, "eos_token_id": [1, 4]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def tokenizers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replaces mlx_lm's tokenizer loader; its calls end up in the list."""
    calls: list[tuple[Any, ...]] = []

    def load_tokenizer(path: Path, extra: dict[str, Any] | None, eos_token_ids: Any = None) -> Tokenizer:
        calls.append((path, extra, eos_token_ids))
        return Tokenizer()

    monkeypatch.setattr("mlx_lm.utils.load_tokenizer", load_tokenizer)
    return calls


# load


def test_a_folder_gives_model_and_tokenizer(native: FakeNative, folder: Path, tokenizers: list[Any]) -> None:
    model, tokenizer = load(str(folder), tokenizer_config={"use_fast": True})
    assert isinstance(model, Model) and isinstance(tokenizer, Tokenizer)
    assert native.loads == [(str(folder), {"lazy": False})]
    assert tokenizers == [(folder, {"use_fast": True}, [1, 4])]
    model.close()


def test_a_path_object_will_do_and_the_config_comes_if_asked_for(
    native: FakeNative, folder: Path, tokenizers: list[Any]
) -> None:
    model, _, config = load(folder, lazy=True, return_config=True)
    assert config == model.config == CONFIG
    assert model.path == folder
    assert native.loads[0][1] == {"lazy": True}
    model.close()


def test_end_tokens_of_the_generation_config_count(native: FakeNative, folder: Path, tokenizers: list[Any]) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 106]}))
    model, _ = load(folder)
    assert tokenizers[0][2] == [1, 106]
    model.close()


def test_load_model_needs_no_tokenizer(native: FakeNative, folder: Path, tokenizers: list[Any]) -> None:
    model, config = utils.load_model(folder)
    assert config == CONFIG and not tokenizers
    model.close()


def test_the_demo_model_has_a_name(
    native: FakeNative, folder: Path, tokenizers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("axlm.demo.resolve", lambda name, device: asked.append((name, device)) or folder)
    model, _ = load("smollm2-135m")
    assert asked == [("smollm2-135m", "cpu")] and model.path == folder
    model.close()


@pytest.mark.parametrize("name", ["./none", "/none/of/these", "a/b/c", "~/none", "bad name"])
def test_a_missing_folder_is_not_found(native: FakeNative, name: str) -> None:
    with pytest.raises(FileNotFoundError, match="no model folder"):
        load(name)
    assert not native.loads


def test_a_file_is_no_folder(native: FakeNative, folder: Path) -> None:
    with pytest.raises(NotADirectoryError, match=r"config\.json"):
        load(folder / "config.json")


@pytest.mark.parametrize("name", ["nobody/nothing", "nothing"])
def test_the_hub_out_of_reach_is_one_line(native: FakeNative, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(FileNotFoundError, match=f"^no folder '{name}' here, and the Hugging Face hub .*$") as caught:
        load(name)
    assert "\n" not in str(caught.value)


def test_hub_names_are_downloaded(
    native: FakeNative, folder: Path, tokenizers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def download(repo: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repo, revision, "model*.safetensors" in allow_patterns))
        return str(folder)

    monkeypatch.setattr("mlx_lm.utils.snapshot_download", download)
    model, _ = load("somebody/model", revision="v2")
    assert asked == [("somebody/model", "v2", True)] and model.path == folder
    model.close()


def test_an_adapter_reaches_the_core(native: FakeNative, folder: Path, tokenizers: list[Any]) -> None:
    model, _ = load(folder, adapter_path="somewhere")
    assert native.loads[-1][1]["adapter"] == "somewhere"
    model.close()


def test_downloads_are_those_of_mlx_lm() -> None:
    from mlx_lm import utils as theirs

    assert getattr(theirs, "DEFAULT_ALLOW_PATTERNS", utils._DOWNLOADS) == utils._DOWNLOADS


def test_a_changed_config_reaches_the_core(native: FakeNative, folder: Path, tokenizers: list[Any]) -> None:
    changes = {"quantize_activations": False, "rope_theta": 7.0}
    model, _, config = load(folder, model_config=changes, return_config=True)
    assert config == {**CONFIG, **changes}
    assert native.loads[-1][1]["config"] == changes
    model.close()


@pytest.mark.parametrize(("options", "error"), [({}, ValueError), ({"fallback": False}, NotImplementedError)])
def test_a_models_own_code_is_not_run_unasked(
    native: FakeNative, folder: Path, options: dict[str, Any], error: type[Exception], tokenizers: list[Any]
) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_file": "evil.py"}))
    with pytest.raises(error, match=r"evil\.py"):
        load(folder, **options)
    assert not native.models


def test_the_cores_error_comes_before_the_tokenizers(
    native: FakeNative, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native.load_error = core_error("ValueError", "unknown model_type 'mamba'; known: llama, qwen3")
    with pytest.raises(ValueError, match=r"^unknown model_type 'mamba'; known: llama, qwen3$"):
        load(tmp_path)  # not even a config.json


def test_a_tokenizers_error_frees_the_model(native: FakeNative, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no tokenizer")

    monkeypatch.setattr("mlx_lm.utils.load_tokenizer", fail)
    with pytest.raises(OSError, match="no tokenizer"):
        load(folder)
    assert len(native.loads) == 1 and not native.models


def test_an_interrupted_load_frees_the_model(native: FakeNative, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native.load_waits, native.pause = 3, 0.01

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlx_lm.utils.load_tokenizer", interrupt)
    with pytest.raises(KeyboardInterrupt):
        load(folder)
    assert not native.models and not native._pending_loads


def test_a_slow_load_shows_a_bar(
    native: FakeNative, folder: Path, tokenizers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[int, int]] = []

    class Bar:
        def __init__(self, description: str, unit: str) -> None:
            assert unit == "B"

        def update(self, done: int, total: int) -> None:
            shown.append((done, total))

        def close(self) -> None:
            shown.append((-1, -1))

    monkeypatch.setattr(utils, "Bar", Bar)
    native.load_waits = 2
    model, _ = load(folder)
    assert shown == [(10, 100), (100, 100), (-1, -1)]
    model.close()


def test_the_core_is_prepared_before_anything_imports_mlx(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS can only be put in place before mlx.core is imported."""

    class Prepared(Exception):
        pass

    def prepare() -> None:
        assert not {"mlx_lm", "mlx.core", "transformers"} & set(sys.modules)
        raise Prepared

    for name in [name for name in sys.modules if name.partition(".")[0] in ("mlx_lm", "mlx", "transformers")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("mlx_lm", "mlx.core", "transformers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(_bridge, "prepare", prepare)
    for function in (load, utils.load_model):
        with pytest.raises(Prepared):
            function(folder)
    with pytest.raises(Prepared):
        load("somebody/model")


def test_a_missing_folder_is_found_without_loading_the_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bridge, "_loaded", lambda: pytest.fail("the core was loaded"))
    with pytest.raises(FileNotFoundError):
        load("/none/of/these")


# Model


def test_a_model_describes_itself(native: FakeNative, folder: Path) -> None:
    native.info = {"num_parameters": 134_515_008}
    quantization = {"bits": 4, "group_size": 32}
    for config, words in (
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"text_config": {"dtype": "float16"}}, "float16"),
        ({}, "not quantised"),
        ({"quantization": quantization}, "4-bit affine, group 32"),
        ({"quantization": {**quantization, "mode": "mxfp4"}}, "4-bit mxfp4, group 32"),
        ({"quantization": {**quantization, "lm_head": {"bits": 8}}}, "4-bit affine, group 32, some layers otherwise"),
    ):
        model = Model(native.add_model(), folder, config)
        assert repr(model) == f"<axlm.Model llama, 135M parameters, {words}, 98 MB, {str(folder)!r}>"
        model.close()
        assert repr(model) == "<axlm.Model llama, closed>"


def test_a_model_knows_what_the_core_tells(native: FakeNative, folder: Path) -> None:
    model = Model(native.add_model(), folder, CONFIG)
    assert model.vocab_size == 100 and model.model_type == "llama" and model.nbytes == 98_000_000
    model.close()


def test_a_model_is_freed_with_its_last_reference(native: FakeNative, folder: Path) -> None:
    model = Model(native.add_model(), folder, CONFIG)
    assert len(native.models) == 1
    del model
    gc.collect()
    assert not native.models


def test_a_closed_model_says_so(model: Model, native: FakeNative) -> None:
    mx = pytest.importorskip("mlx.core")
    assert model.stats() == {"generated_tokens": 0}
    model.close()
    model.close()
    assert not native.models
    for use in (model.stats, lambda: model.handle, lambda: model(mx.array([[1]]))):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_calls_take_rows_of_ids(model: Model) -> None:
    mx = pytest.importorskip("mlx.core")
    assert model(mx.array([[1, 2, 3], [4, 5, 6]])) == ("array", 3)
    assert model(np.array([[1, 2, 3, 4]])) == ("array", 4)


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ([1, 2], ValueError),
        (np.array([1, 2]), ValueError),
        (np.zeros((1, 0), int), ValueError),
        (np.zeros((0, 3), int), ValueError),
        (np.zeros((1, 1, 1), int), ValueError),
        (np.array([[1.0]]), TypeError),
        (np.array([[-1]]), ValueError),
        (np.array([[2**40]]), ValueError),
    ],
)
def test_bad_calls(model: Model, tokens: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        model(tokens)


@pytest.mark.parametrize(
    ("name", "error"), [("cache", TypeError), ("input_embeddings", ValueError), ("mask", NotImplementedError)]
)
def test_wrong_arguments_of_calls_are_named(model: Model, name: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=name):
        model(np.array([[1]]), **{name: 3})


# Bars


def test_bars_wait_and_scale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(_progress, "interactive", lambda: True)
    monkeypatch.setattr(_progress, "BAR_AFTER_SECONDS", 0.05)
    bar = _progress.Bar("Loading", "B")
    bar.update(1, 10**9)
    assert capsys.readouterr().err == ""
    time.sleep(0.06)
    bar.update(250_000_000, 10**9)
    bar.update(500_000_000, 10**9)
    assert "Loading:  50%" in capsys.readouterr().err
    bar.close()
    bar.update(10**9, 10**9)
    assert "100%" not in capsys.readouterr().err
