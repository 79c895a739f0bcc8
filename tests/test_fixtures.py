"""The fixtures are what the other tests take them for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlx.core as mx
import pytest
from fixtures import altered, check, tiny_models, tiny_tokenizers
from fixtures.folders import make_once
from fixtures.tiny_configs import CONFIGS

FAST = ("qwen3-f32", "llama-f32", "qwen3-nano-f32", "llama-nano-f32")
QUANTISED = [form for form, spec in tiny_models.FORMS.items() if spec.mode and form not in ("recipe46", "experts4")]
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def mlx_lm_model(folder: Path) -> object:
    from mlx_lm.utils import load_model

    return load_model(folder)[0]


@pytest.mark.parametrize("name", FAST)
def test_greedy_text_varies_and_has_no_near_ties(name: str, tiny: Callable[[str], Path]) -> None:
    for prompt, result in check.measure(tiny(name)).items():
        assert result.distinct >= (15 if "nano" in name else 60), prompt
        assert (result.period, result.ends) == (0, 0), prompt
        assert result.min_margin > 1e-3, prompt


@pytest.mark.parametrize("name", ["qwen3-bf16", "qwen3-nano-q4g32", "qwen3-mixed46"])
def test_folders_are_the_same_bytes_every_time(name: str, tmp_path: Path) -> None:
    first, second = (tiny_models.make(name, tmp_path / part) for part in ("a", "b"))
    files = sorted(file.name for file in first.iterdir())
    assert files == sorted(file.name for file in second.iterdir())
    for file in files:
        assert (first / file).read_bytes() == (second / file).read_bytes(), file


def test_a_folder_is_made_once_and_again_when_what_it_is_made_from_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_models.make("qwen3-nano-f32", tmp_path)
    (folder / "mark").write_text("")
    assert tiny_models.make("qwen3-nano-f32", tmp_path) == folder
    assert (folder / "mark").exists()
    monkeypatch.setattr(tiny_models, "_fingerprint", lambda: "another")
    assert tiny_models.make("qwen3-nano-f32", tmp_path) == folder
    assert not (folder / "mark").exists()
    assert [entry.name for entry in tmp_path.iterdir() if entry.suffix != ".lock"] == [folder.name]


def test_a_folder_wanted_twice_at_once_is_made_once(tmp_path: Path) -> None:
    written: list[Path] = []

    def write(folder: Path) -> None:
        written.append(folder)
        time.sleep(0.05)  # long enough for the others to find nothing there
        (folder / "file").write_text("whole")

    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(make_once, tmp_path / "wanted", "origin", write) for _ in range(4)]
    assert [(job.result() / "file").read_text() for job in jobs] == ["whole"] * 4
    assert len(written) == 1


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"qwen4-f32.*qwen3-f32"):
        tiny_models.make("qwen4-f32", tmp_path)


def test_names_are_models_and_forms() -> None:
    assert len(set(tiny_models.NAMES)) == len(tiny_models.NAMES)
    for name in tiny_models.NAMES:
        model, _, form = name.rpartition("-")
        assert model in CONFIGS
        assert form in tiny_models.FORMS
    assert set(tiny_models.SEEDS) == set(CONFIGS)


def test_the_command_makes_folders(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fixtures", "--out", str(tmp_path), "--check", "qwen3-nano-f32"]
    here = Path(__file__).parent
    result = subprocess.run(command, cwd=here, env=dict(os.environ), capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    assert "qwen3-nano-f32" in result.stdout
    assert "period 0" in result.stdout
    assert (tmp_path / "qwen3-nano-f32" / "config.json").is_file()


@pytest.mark.parametrize("model", tiny_models.FAMILIES)
def test_every_family_loads_in_mlx_lm_with_the_same_values_in_each_dtype(
    model: str, tiny: Callable[[str], Path]
) -> None:
    single, half = (mx.load(str(tiny(f"{model}-{form}") / "model.safetensors")) for form in ("f32", "bf16"))
    assert single.keys() == half.keys()
    for name, values in half.items():
        assert mx.array_equal(single[name], values.astype(mx.float32)).item(), name
    mlx_lm_model(tiny(f"{model}-f32"))


@pytest.mark.parametrize(
    "form",
    [form for form, spec in tiny_models.FORMS.items() if spec.mode and spec.overrides not in ("recipe", "experts")],
)
def test_every_quantisation_is_as_named_and_near_the_original(form: str, tiny: Callable[[str], Path]) -> None:
    folder, spec = tiny(f"qwen3-{form}"), tiny_models.FORMS[form]
    quantisation = json.loads((folder / "config.json").read_text())["quantization"]
    assert quantisation["bits"] == spec.bits
    assert quantisation["mode"] == spec.mode
    assert quantisation["group_size"] == spec.group
    assert (len(quantisation) > 3) == (spec.overrides not in (None, "inferred"))
    model, original = mlx_lm_model(folder), mlx_lm_model(tiny("qwen3-f32"))
    layers = [model.layers[index].mlp.down_proj for index in (0, 1)]  # type: ignore[attr-defined]
    assert [layer.bits for layer in layers] == [6 if spec.overrides else spec.bits, spec.bits]
    assert hasattr(model.layers[1].self_attn.o_proj, "bits") == (spec.overrides is None)  # type: ignore[attr-defined]
    layer, weight = layers[1], original.layers[1].mlp.down_proj.weight  # type: ignore[attr-defined]
    stored = mx.dequantize(
        layer.weight, layer.scales, layer.get("biases"), layer.group_size, layer.bits, mode=layer.mode
    )
    error = mx.linalg.norm(stored.astype(mx.float32) - weight) / mx.linalg.norm(weight)
    bound = {"mxfp4": 0.15, "nvfp4": 0.13, "mxfp8": 0.04, "affine": 1.8 / (2**layer.bits - 1) + 0.003}
    assert error.item() < bound[layer.mode]


def test_overrides_are_written_as_mlx_lm_writes_them(tiny: Callable[[str], Path]) -> None:
    entries = {}
    for name in ("gemma3-recipe46", "qwen3_moe-experts4"):
        quantisation = json.loads((tiny(name) / "config.json").read_text())["quantization"]
        entries[name] = {path: entry for path, entry in quantisation.items() if isinstance(entry, dict)}
        mlx_lm_model(tiny(name))
    recipe, experts = entries.values()
    assert {path.startswith("language_model.model.") for path in recipe} == {True}
    assert {entry["bits"] for entry in recipe.values()} == {4, 6}
    assert {(entry["bits"], entry["mode"]) for entry in experts.values()} == {(8, "affine")}
    assert "model.layers.0.mlp.gate" in experts and not any("switch_mlp" in path for path in experts)


@pytest.mark.parametrize("kind", tiny_tokenizers.KINDS)
def test_tokenizers_read_back_what_they_wrote(kind: str, tmp_path: Path) -> None:
    from mlx_lm.tokenizer_utils import load

    tiny_tokenizers.write(kind, tmp_path)
    tokenizer, spec = load(tmp_path), tiny_tokenizers.KINDS[kind]
    assert len(tokenizer.vocab) == spec.size
    text = "hello, you 42!" if kind == "letters" else "Hello, you 42! naïve “quoted” 你好 😀\n\tx  y"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text
    assert max(ids) < spec.size
    detokenizer = tokenizer.detokenizer
    for token in ids:
        detokenizer.add_token(token)
    detokenizer.finalize()
    assert detokenizer.text == text
    kinds = {"qwen": "BPE", "llama": "BPE", "gemma": "SPM", "letters": "Naive"}
    assert type(detokenizer).__name__ == f"{kinds[kind]}StreamingDetokenizer"
    chat = tokenizer.decode(tokenizer.apply_chat_template([{"role": "user", "content": "hello"}]))
    assert "hello" in chat
    if spec.bos is not None:
        assert tokenizer.encode("x")[0] == spec.bos


# --------------------------------------------------------------------------- altered copies


@pytest.fixture
def nano(tiny: Callable[[str], Path], tmp_path: Path) -> Path:
    """A copy of the smallest model, to break."""
    return altered.copy(tiny("qwen3-nano-f32"), tmp_path / "model")


@pytest.mark.parametrize("index", [True, False])
def test_sharded_copies_hold_the_same_weights(nano: Path, index: bool) -> None:
    before = altered.read(nano / altered.WEIGHTS)
    files = altered.shard(nano, 3, index=index)
    assert [file.name for file in sorted(nano.glob("*.safetensors"))] == [file.name for file in files]
    assert (nano / altered.INDEX).exists() == index
    after = {name: tensor for file in files for name, tensor in altered.read(file).items()}
    assert after == before
    mlx_lm_model(nano)


def test_rewritten_files_are_read_by_mlx(nano: Path) -> None:
    before = mx.load(str(nano / altered.WEIGHTS))
    mx.eval(before)  # it is lazy, and the file is about to change
    altered.change(nano, lambda tensors: None)
    after = mx.load(str(nano / altered.WEIGHTS))
    assert before.keys() == after.keys()
    assert all(mx.array_equal(before[name], after[name]).item() for name in before)


@pytest.mark.parametrize(
    ("breaking", "error"),
    [
        (lambda folder: altered.lose_shard(folder), ValueError),
        (lambda folder: altered.truncate(folder), RuntimeError),
        (lambda folder: altered.truncate(folder, 0), RuntimeError),
        (lambda folder: altered.lose_tensor(folder, Q_PROJ), ValueError),
        (lambda folder: altered.add_tensor(folder, "model.layers.9.extra"), ValueError),
        (lambda folder: altered.reshape(folder, Q_PROJ), ValueError),
        (lambda folder: altered.header_length(folder, 2**40), RuntimeError),
        (lambda folder: altered.header_garbage(folder), RuntimeError),
        (lambda folder: altered.edit_config(folder, num_hidden_layers=None), TypeError),
    ],
)
def test_broken_copies_are_refused_by_mlx_lm(nano: Path, breaking: Callable[[Path], object], error: type) -> None:
    mlx_lm_model(nano)
    breaking(nano)
    with pytest.raises(error):
        mlx_lm_model(nano)
