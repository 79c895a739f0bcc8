"""Files of prompt caches: each class, plain and compressed, to and from mlx_lm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from axlm import _bridge
from axlm.models import cache as ours
from caches import CACHES, CURRENT, EMPTY, SUFFIXES, Make, arrays, check_equal, filled, rows
from mlx_lm.models import cache as theirs


@SUFFIXES
@pytest.mark.parametrize("make", CACHES.values(), ids=list(CACHES))
def test_each_class_comes_back_as_it_was(tmp_path: Path, make: Make, suffix: str) -> None:
    cache = [make(), make()]
    file = tmp_path / f"cache{suffix}"
    ours.save_prompt_cache(str(file), cache, {"model": "tiny"})
    found, metadata = ours.load_prompt_cache(file, return_metadata=True)
    check_equal(found, cache)
    assert metadata == {"model": "tiny"}
    assert os.listdir(tmp_path) == [file.name]


@pytest.mark.parametrize("make", CACHES.values(), ids=list(CACHES))
def test_each_class_from_and_to_mlx_lm(tmp_path: Path, make: Make) -> None:
    cache = [make(), make()]
    file = str(tmp_path / "cache.safetensors")
    theirs.save_prompt_cache(file, cache, {"by": "mlx_lm"})
    found, metadata = ours.load_prompt_cache(file, True)
    check_equal(found, cache)
    assert metadata == {"by": "mlx_lm"}
    ours.save_prompt_cache(file, found, {"by": "axlm"})
    found, metadata = theirs.load_prompt_cache(file, True)
    check_equal(found, cache)
    assert metadata == {"by": "axlm"}


def test_a_compressed_file_is_a_standard_one(tmp_path: Path) -> None:
    """What the zstd program unpacks is a file of mlx_lm's, and what it packs is loaded."""
    program = shutil.which("zstd")
    if program is None:
        pytest.skip("the zstd program is not installed")
    cache = [make() for make in CACHES.values()]
    packed, plain = tmp_path / "a.safetensors.zst", tmp_path / "a.safetensors"
    ours.save_prompt_cache(packed, cache)
    subprocess.run([program, "-q", "-d", packed, "-o", plain], check=True)
    check_equal(theirs.load_prompt_cache(str(plain)), cache)
    subprocess.run([program, "-q", "-f", "-9", plain, "-o", packed], check=True)
    check_equal(ours.load_prompt_cache(packed), cache)


@SUFFIXES
def test_many_frames(tmp_path: Path, suffix: str) -> None:
    """More than a frame to a tensor, and more than a tensor to a frame."""
    cache = [
        filled(ours.KVCache(), 40_000, dtype=mx.bfloat16),
        filled(ours.KVCache(), 3),
        filled(ours.KVCache(), 17_001),
        arrays(),
    ]
    size = sum(c.nbytes for c in cache)
    assert size > 15e6
    file = tmp_path / f"cache{suffix}"
    ours.save_prompt_cache(file, cache)
    check_equal(ours.load_prompt_cache(file), cache)
    assert (file.stat().st_size < 0.95 * size) == (suffix != ".safetensors")


@CURRENT
@SUFFIXES
@pytest.mark.parametrize("make", EMPTY.values(), ids=list(EMPTY))
def test_empty_caches(tmp_path: Path, make: Make, suffix: str) -> None:
    file = tmp_path / f"cache{suffix}"
    ours.save_prompt_cache(file, [make(), filled(ours.KVCache(), 2)])
    found = ours.load_prompt_cache(file)
    assert found[0].empty()
    check_equal(found[:1], [make()])
    assert found[1].offset == 2


@CURRENT
@SUFFIXES
def test_no_layers(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"cache{suffix}"
    ours.save_prompt_cache(file, [])
    assert ours.load_prompt_cache(file, True) == ([], {})


@pytest.mark.parametrize("make", [CACHES["BatchKVCache"], CACHES["BatchRotatingKVCache"]], ids=["plain", "rotating"])
def test_a_loaded_batch_goes_on(tmp_path: Path, make: Make) -> None:
    file = tmp_path / "cache.safetensors"
    cache = make()
    ours.save_prompt_cache(file, [cache])
    (found,) = ours.load_prompt_cache(file)
    keys, values = rows(3, batch=2)
    for c in (cache, found):
        c.prepare(lengths=[3, 2], right_padding=[0, 1])
        c.update_and_fetch(keys, values)
        c.finalize()
    check_equal([found], [cache])


@SUFFIXES
@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (None, {}),
        ({}, {}),
        ({"größe": '中文 😀\u0000\n"\\', "": "no name"}, {"größe": '中文 😀\u0000\n"\\', "": "no name"}),
        ({"a.b": "1", "a.c": "2"}, {"a": {"b": "1", "c": "2"}}),
        ({"model": "m", "tokenizer_config": "{}"}, {"model": "m", "tokenizer_config": "{}"}),
        ({"long": "x" * 300_000}, {"long": "x" * 300_000}),
    ],
    ids=["none", "empty", "unicode", "dots", "as mlx_lm has it", "long"],
)
def test_metadata(tmp_path: Path, metadata: Any, expected: Any, suffix: str) -> None:
    file = tmp_path / f"cache{suffix}"
    ours.save_prompt_cache(file, [filled(ours.KVCache(), 2)], metadata)
    assert ours.load_prompt_cache(file, return_metadata=True)[1] == expected
    plain = tmp_path / "theirs.safetensors"
    theirs.save_prompt_cache(str(plain), [filled(ours.KVCache(), 2)], metadata or {})
    assert theirs.load_prompt_cache(str(plain), return_metadata=True)[1] == expected


@SUFFIXES
def test_metadata_that_are_no_strings(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ValueError, match="Metadata"):
        ours.save_prompt_cache(tmp_path / f"cache{suffix}", [filled(ours.KVCache(), 2)], {"n": 1})
    assert os.listdir(tmp_path) == []


def test_names(tmp_path: Path) -> None:
    cache = [filled(ours.KVCache(), 2)]
    ours.save_prompt_cache(str(tmp_path / "a"), cache)  # mlx_lm adds the ending
    ours.save_prompt_cache(tmp_path / "b.zst", cache)
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "b.zst"]
    check_equal(ours.load_prompt_cache(tmp_path / "a.safetensors"), cache)
    check_equal(ours.load_prompt_cache(tmp_path / "b.zst"), cache)
    with open(tmp_path / "c.safetensors", "wb") as opened:
        ours.save_prompt_cache(opened, cache)
    with open(tmp_path / "c.safetensors", "rb") as opened:
        check_equal(ours.load_prompt_cache(opened), cache)
    (tmp_path / "d.bin").write_bytes((tmp_path / "a.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"d\.bin.*\.safetensors"):
        ours.load_prompt_cache(tmp_path / "d.bin")


@SUFFIXES
def test_saving_over_what_was_loaded(tmp_path: Path, suffix: str) -> None:
    """Arrays of a plain file are read when they are used: from the file as it was."""
    file = tmp_path / f"cache{suffix}"
    cache = [filled(ours.KVCache(), 40, dtype=mx.bfloat16) for _ in range(3)]
    ours.save_prompt_cache(file, cache)
    os.chmod(file, 0o640)
    link = tmp_path / f"link{suffix}"
    link.symlink_to(file.name)
    loaded = ours.load_prompt_cache(link)
    ours.save_prompt_cache(link, loaded[::-1])
    check_equal(loaded, cache)
    check_equal(ours.load_prompt_cache(file), cache[::-1])
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640


@CURRENT
@SUFFIXES
def test_a_failed_save_leaves_the_old_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"cache{suffix}"
    cache = [filled(ours.KVCache(), 4)]
    ours.save_prompt_cache(file, cache)
    broken = filled(ours.KVCache(), 4)
    broken.offset = object()
    with pytest.raises(ValueError, match="serializable"):
        ours.save_prompt_cache(file, [broken])
    check_equal(ours.load_prompt_cache(file), cache)
    assert os.listdir(tmp_path) == [file.name]


@SUFFIXES
def test_places_that_cannot_be_written(tmp_path: Path, suffix: str) -> None:
    cache = [filled(ours.KVCache(), 4)]
    with pytest.raises(FileNotFoundError, match=r"no folder .*none"):
        ours.save_prompt_cache(tmp_path / "none" / f"cache{suffix}", cache)
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(OSError, match=f"folder{suffix}"):
        ours.save_prompt_cache(folder, cache)


def test_an_interruption_gives_the_work_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = [filled(ours.KVCache(), 100_000)]  # 50 MB: a tenth of a second and more
    file = tmp_path / "cache.safetensors.zst"
    file.write_bytes(b"the old file")

    def interrupted(job: int, wait_ms: int) -> Any:
        signal.raise_signal(signal.SIGINT)
        return wait(job, wait_ms)

    wait = _bridge.pack_wait
    monkeypatch.setattr(_bridge, "pack_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.save_prompt_cache(file, cache)
    assert file.read_bytes() == b"the old file"
    assert os.listdir(tmp_path) == [file.name]
    monkeypatch.undo()
    ours.save_prompt_cache(file, cache)
    monkeypatch.setattr(_bridge, "pack_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ours.load_prompt_cache(file)
    monkeypatch.undo()
    check_equal(ours.load_prompt_cache(file), cache)


def test_stale_jobs(tmp_path: Path) -> None:
    file = tmp_path / "cache.safetensors"
    ours.save_prompt_cache(file, [])
    job = _bridge.pack_start(str(file), f"{file}.zst")
    while not _bridge.pack_wait(job, 1000)["ended"]:
        pass
    with pytest.raises(ValueError, match="job is closed"):
        _bridge.pack_wait(job, 0)
    _bridge.pack_cancel(job)
    with pytest.raises(ValueError, match="job is closed"):
        _bridge.pack_wait(-1, 0)


def test_every_name_of_mlx_lm_is_there() -> None:
    names = {name for name, value in vars(theirs).items() if getattr(value, "__module__", "") == theirs.__name__}
    assert {name for name in names if not name.startswith("_")} <= set(ours.__all__)
    for name in names - {"make_prompt_cache", "save_prompt_cache", "load_prompt_cache"}:
        assert getattr(ours, name) is getattr(theirs, name)
    with pytest.raises(AttributeError):
        ours.no_such_name  # noqa: B018


def test_importing_axlm_leaves_mlx_lm_alone() -> None:
    code = "import sys, axlm, axlm.models; print({'mlx_lm', 'mlx.core'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"
