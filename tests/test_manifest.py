"""``axlm manifest``: it describes a folder truly, notices changes, and loading refuses one that lies."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import pytest
from axlm.cli import main
from safetensors import safe_open

Tiny = Callable[[str], Path]
NAMES = ["qwen3-q4", "llama-f32", "qwen3_5-f32", "gemma4-f32"]


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


@pytest.mark.parametrize(
    ("lie", "culprit"),
    [
        (lambda m: m["tensors"][0].update(shape=[1, 2]), "shape"),
        (lambda m: m["tensors"][0].update(length=10**12), "model.safetensors"),
        (lambda m: m["files"][0].update(name="../elsewhere.safetensors"), "elsewhere"),
        (lambda m: m["dimensions"].update(hidden_size=7), "hidden_size"),
    ],
)
def test_a_manifest_that_lies_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], lie: Callable[[Any], Any], culprit: str
) -> None:
    main(["manifest", str(folder)])
    manifest = manifest_of(folder)
    lie(manifest)
    (folder / "model-manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert main(["manifest", str(folder)]) == 1
    assert culprit in capsys.readouterr().err
    with pytest.raises(ValueError, match=culprit):
        axlm.load(folder)
    (folder / "model-manifest.json").unlink()
    model, _ = axlm.load(folder)
    model.close()


def test_a_missing_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["manifest", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
