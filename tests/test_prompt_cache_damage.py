"""Files of prompt caches that are wrong: each gives an error that names it and says why, and the next call works."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from axlm import _bridge
from axlm.models import _cache_file
from axlm.models import cache as ours
from caches import CURRENT, SUFFIXES, filled


def saved(tmp_path: Path, suffix: str) -> Path:
    file = tmp_path / f"saved{suffix}"
    ours.save_prompt_cache(file, [filled(ours.KVCache(), 40), filled(ours.RotatingKVCache(8), 20)], {"model": "tiny"})
    return file


def refused(file: Path, *words: str, kind: type[Exception] = ValueError) -> None:
    """Demand an error that names the file and what is wrong, and that the next call works."""
    with pytest.raises(kind) as caught:
        ours.load_prompt_cache(file)
    assert str(file) in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    good = saved(file.parent, ".safetensors.zst")
    assert len(ours.load_prompt_cache(good)) == 2


@SUFFIXES
def test_missing(tmp_path: Path, suffix: str) -> None:
    refused(tmp_path / f"missing{suffix}", "does not exist", kind=FileNotFoundError)
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    refused(folder, "not a regular file", kind=OSError)


@SUFFIXES
@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, 0.5, 0.99, -1])
def test_truncated(tmp_path: Path, keep: float, suffix: str) -> None:
    content = saved(tmp_path, suffix).read_bytes()
    file = tmp_path / f"cut{suffix}"
    file.write_bytes(content[: keep if isinstance(keep, int) else int(len(content) * keep)])
    refused(file, "truncated" if keep else "empty")


def test_a_flipped_bit_in_a_compressed_file(tmp_path: Path) -> None:
    content = saved(tmp_path, ".safetensors.zst").read_bytes()
    file = tmp_path / "flipped.safetensors.zst"
    for place in (0, 5, 1000, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 4
        file.write_bytes(changed)
        refused(file)


@SUFFIXES
def test_foreign(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"foreign{suffix}"
    file.write_bytes(b"some text, long enough to be read as a header\n" * 9)
    refused(file, "not compressed with zstd" if suffix.endswith("zst") else "no safetensors file")
    other = saved(tmp_path, ".safetensors" if suffix.endswith("zst") else ".safetensors.zst")
    file.write_bytes(other.read_bytes())
    refused(file, "name ends in .safetensors" if suffix.endswith("zst") else "name ends in .zst")
    plain = tmp_path / "model.safetensors"
    for metadata in ({}, {"format": "pt"}, {"0": "a", "1": "b"}):
        mx.save_safetensors(str(plain), {"model.embed_tokens.weight": mx.zeros((4, 4))}, metadata)
        refused(repacked(plain, file), "no prompt cache", "model.embed_tokens.weight")
    mx.save_safetensors(str(plain), {}, {})
    refused(repacked(plain, file), "no prompt cache", "holds nothing")


def repacked(plain: Path, file: Path) -> Path:
    """Give a plain file another name, compressing it if that says so."""
    if file.suffix == ".zst":
        _cache_file._wait(lambda: _bridge.pack_start(str(plain), str(file)), "")
    else:
        shutil.copy(plain, file)
    return file


Change = Callable[[dict[str, mx.array], dict[str, str]], Any]

CHANGES: dict[str, tuple[Change, str]] = {
    "unknown class": (lambda a, m: m.update({"1.1": "FancyCache"}), "layer 1 is a 'FancyCache'"),
    "function as class": (lambda a, m: m.update({"1.0": "make_prompt_cache"}), "layer 0 is a 'make_prompt_cache'"),
    "another class": (lambda a, m: m.update({"1.0": "RotatingKVCache"}), "layer 0 is no RotatingKVCache"),
    "more classes": (lambda a, m: m.update({"1.2": "KVCache"}), "names 3 layers, but has the states of 2"),
    "fewer classes": (lambda a, m: m.pop("1.1"), "names 1 layers, but has the states of 2"),
    "no classes": (lambda a, m: (m.pop("1.0"), m.pop("1.1")), "names 0 layers"),
    "no values": (lambda a, m: a.pop("0.1"), "layer 0"),
    "no offset": (lambda a, m: a.pop("0.2"), "'0.2'"),
    "offset an array": (lambda a, m: a.update({"0.2": mx.arange(3)}), "'0.2'"),
    "offset a fraction": (lambda a, m: a.update({"0.2": mx.array(1.5)}), "offset is 1.5"),
    "offset below 0": (lambda a, m: a.update({"0.2": mx.array(-1)}), "offset is -1"),
    "offset too large": (lambda a, m: a.update({"0.2": mx.array(1 << 29)}), "536870912 rows are in use, of 256"),
    "offset a flag": (lambda a, m: a.update({"0.2": mx.array(True)}), "offset is True"),
    "index too large": (lambda a, m: a.update({"1.5": mx.array(21)}), "21 rows are in use, of 20"),
    "kind unknown": (lambda a, m: m.update({"2.1.1": "pickle"}), "'pickle'"),
    "mark without a kind": (lambda a, m: m.pop("2.1.1"), "damaged"),
    "keys of another length": (lambda a, m: a.update({"0.0": mx.zeros((1, 2, 255, 32))}), "do not fit each other"),
    "keys of another rank": (lambda a, m: a.update({"0.0": mx.zeros((256, 32))}), "do not fit each other"),
    "keys none": (lambda a, m: m.update({"2.9.0": "0.0", "2.9.1": "none"}), "damaged"),
    "a billion layers": (lambda a, m: a.update({"999999999.0": mx.zeros(1)}), "no prompt cache has"),
    "a billion marks": (lambda a, m: m.update({"2.999999999": ""}), "no prompt cache has"),
    "a deep name": (lambda a, m: a.update({"0." * 5000 + "0": mx.zeros(1)}), "5001 parts"),
    "a layer below 0": (lambda a, m: a.update({"-1.0": mx.zeros(1)}), "names 2 layers"),
}


@CURRENT
@SUFFIXES
@pytest.mark.parametrize("change", CHANGES, ids=list(CHANGES))
def test_caches_with_wrong_contents(tmp_path: Path, change: str, suffix: str) -> None:
    arrays, metadata = mx.load(str(saved(tmp_path, ".safetensors")), return_metadata=True)
    damage, words = CHANGES[change]
    damage(arrays, metadata)
    plain = tmp_path / "changed.safetensors"
    mx.save_safetensors(str(plain), arrays, metadata)
    refused(repacked(plain, tmp_path / f"wrong{suffix}"), words)


@CURRENT
def test_a_file_of_an_older_mlx_lm(tmp_path: Path) -> None:
    file = tmp_path / "old.safetensors"
    arrays = {"0.0": mx.zeros((1, 2, 3, 32)), "0.1": mx.zeros((1, 2, 3, 32))}
    mx.save_safetensors(str(file), arrays, {"0.0": "", "1.model": "m", "2.0": "KVCache"})
    refused(file, "mlx_lm before 0.32", "make it again")


def test_headers_that_lie(tmp_path: Path) -> None:
    content = saved(tmp_path, ".safetensors").read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    file = tmp_path / "lying.safetensors"

    def write(changed: Any) -> None:
        text = json.dumps(changed).encode()
        file.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])

    entry = header["0.0"]
    write({**header, "0.0": {**entry, "shape": [1 << 40, 1 << 20]}})
    refused(file, "0.0")
    write({**header, "0.0": {**entry, "dtype": "F128"}})
    refused(file, "F128")
    write({**header, "0.0": header["0.1"]})
    refused(file, "share bytes")
    write([1, 2])
    refused(file, "no JSON object")
    file.write_bytes(struct.pack("<Q", 1 << 60) + content[8:])
    refused(file, "no safetensors file")


def test_a_bomb_is_refused_by_its_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved(tmp_path, ".safetensors.zst")
    size = _bridge.cache_file_sizes(str(file), packed=True)["content"]
    monkeypatch.setattr(_bridge, "device", lambda: {"memory_size": size - 1})
    refused_alone(file, ValueError, f"would unpack to {size} bytes")
    monkeypatch.undo()
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=size))
    refused_alone(file, OSError, f"needs {size} bytes to unpack")
    monkeypatch.undo()
    job = _bridge.unpack_start(str(file), str(tmp_path / "out"), size - 1)
    with pytest.raises(ValueError, match="at most are allowed"):
        _bridge.pack_wait(job, 60_000)
    assert os.listdir(tmp_path) == [file.name]


def refused_alone(file: Path, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        ours.load_prompt_cache(file)
    assert str(file) in str(caught.value)


def test_a_full_disk_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for temporary files there, one is unpacked beside the cache; nothing stays."""
    file = saved(tmp_path, ".safetensors.zst")
    usage = shutil.disk_usage
    monkeypatch.setattr(
        shutil, "disk_usage", lambda folder: usage(folder) if folder == str(tmp_path) else usage("/")._replace(free=0)
    )
    assert len(ours.load_prompt_cache(file)) == 2
    assert os.listdir(tmp_path) == [file.name]
