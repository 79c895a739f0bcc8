"""``axlm manifest``: it describes a folder truly, notices changes, and loading refuses one that lies."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import pytest
from axlm.cli import main
from fixtures import altered
from safetensors import safe_open

Tiny = Callable[[str], Path]
NAMES = [
    "qwen3-q4",
    "llama-f32",
    "qwen3_5-f32",
    "gemma4-f32",
    "qwen2-f32",
    "qwen3_moe-experts4",
    "gemma3-q4",
    "gemma4-all-f32",
]


@pytest.fixture
def folder(tiny: Tiny, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny("qwen3-nano-f32"), tmp_path / "model"))


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "model-manifest.json").read_text("utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_it_describes_every_tensor(tiny: Tiny, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(tiny(name), tmp_path / name))
    assert main(["manifest", str(folder)]) == 0
    manifest = manifest_of(folder)
    tensors = {tensor["name"]: tensor for tensor in manifest["tensors"]}
    for file in folder.glob("model*.safetensors"):
        data = file.read_bytes()
        with safe_open(str(file), "numpy") as opened:
            for key in opened.keys():  # noqa: SIM118 — it is no dictionary
                tensor = tensors.pop(key)
                assert tensor["shape"] == opened.get_slice(key).get_shape()
                assert tensor["file"] == file.name and tensor["role"] != "other"
                assert 0 < tensor["offset"] <= tensor["offset"] + tensor["length"] <= len(data)
    assert not tensors
    assert main(["manifest", str(folder), "--check"]) == 0
    model, _ = axlm.load(folder)
    model.close()


def test_check_writes_nothing(folder: Path) -> None:
    assert main(["manifest", str(folder), "--check"]) == 1
    assert not (folder / "model-manifest.json").exists()


def test_a_changed_folder_is_noticed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["manifest", str(folder)])
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"rope_theta": 5000.0}), "utf-8")
    capsys.readouterr()
    assert main(["manifest", str(folder), "--check"]) == 1
    assert "out of date" in capsys.readouterr().out
    model, _ = axlm.load(folder)  # a stale one is as good as none
    model.close()
    assert main(["manifest", str(folder)]) == 0
    assert main(["manifest", str(folder), "--check"]) == 0


def test_json_is_the_manifest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == manifest_of(folder)


def embed(manifest: dict[str, Any]) -> dict[str, Any]:
    return next(tensor for tensor in manifest["tensors"] if tensor["role"] == "embed_tokens")


LIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "shape": (lambda m: embed(m).update(shape=[1, 2]), r"tensor model\.embed_tokens\.weight: shape"),
    "role": (lambda m: embed(m).update(role="lm_head"), r'embed_tokens\.weight: role is "embed_tokens"'),
    "layer": (lambda m: embed(m).update(layer=7), "layer is -1, not 7"),
    "dtype": (lambda m: embed(m).update(dtype="BF16"), 'dtype is "F32", not "BF16"'),
    "length": (lambda m: embed(m).update(length=10**12), r"lie outside model\.safetensors"),
    "offset": (lambda m: embed(m).update(offset=-8), "offset -8"),
    "moved": (lambda m: embed(m).update(offset=embed(m)["offset"] + 4), "offset is"),
    "file above": (lambda m: m["files"][0].update(name="../elsewhere.safetensors"), r'"\.\./elsewhere'),
    "file elsewhere": (lambda m: embed(m).update(file="/etc/passwd"), '"/etc/passwd" is not a name within'),
    "file unlisted": (lambda m: embed(m).update(file="tokenizer.json"), "is not among the files"),
    "twice": (lambda m: m["tensors"].append(embed(m)), "is listed twice"),
    "left out": (lambda m: m["tensors"].pop(), "is not listed"),
    "size": (lambda m: m["dimensions"].update(hidden_size=7), r"dimensions\.hidden_size is 32, not 7"),
    "family": (lambda m: m.update(family="llama"), 'family is "qwen3", not "llama"'),
    "layers": (lambda m: m.update(layer_types=["sliding_attention"] * 2), r"layer_types\[0\]"),
    "end tokens": (lambda m: m.update(end_tokens=[5]), "end_tokens"),
    # of another type than the schema has
    "no object": (lambda m: m.update(dimensions=[1]), r"dimensions: want an object, got \[1\]"),
    "no integer": (
        lambda m: m["dimensions"].update(hidden_size="32"),
        r'dimensions\.hidden_size: want an integer, got "32"',
    ),
    "no list": (lambda m: m["tensors"][2].update(shape=3), r"tensors\[2\]\.shape: want a list, got 3"),
    "no string": (lambda m: m["files"][0].update(name=1), r"files\[0\]\.name: want a string, got 1"),
    "unknown key": (lambda m: m["tensors"][1].update(color=3), r"tensors\[1\]\.color: no such key"),
}


@pytest.mark.parametrize("case", LIES)
def test_a_manifest_that_lies_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    lie, culprit = LIES[case]
    main(["manifest", str(folder)])
    manifest = manifest_of(folder)
    lie(manifest)
    (folder / "model-manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert main(["manifest", str(folder)]) == 1
    told = capsys.readouterr().err
    assert re.search(culprit, told) and "unmarshal" not in told
    with pytest.raises(ValueError, match=culprit):
        axlm.load(folder)
    (folder / "model-manifest.json").unlink()
    model, _ = axlm.load(folder)
    model.close()


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["manifest", str(folder)])
    outside = (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    (folder / "model.safetensors").symlink_to(outside)
    assert main(["manifest", str(folder)]) == 1
    assert "leaves the folder" in capsys.readouterr().err
    with pytest.raises(ValueError, match="leaves the folder"):
        axlm.load(folder)


def test_tensors_that_are_not_the_familys_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "model.layers.1.self_attn.q_proj.weight"
    altered.reshape(folder, name, (32, 64))
    assert main(["manifest", str(folder)]) == 1
    assert f"{name}: want shape [64, 32], got [32, 64]" in capsys.readouterr().err
    assert not (folder / "model-manifest.json").exists()


def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
