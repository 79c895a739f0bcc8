"""Errors of files, of the core's and of ours: Python's class, ``errno`` and ``filename``, and one readable line."""

from __future__ import annotations

import errno
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import axlm
import pytest
from axlm import _bridge, shapes
from axlm._errors import file_error
from axlm.models.cache import KVCache, load_prompt_cache, save_prompt_cache

Call = Callable[[Path], object]

CASES: dict[str, tuple[Call, str, int, type[OSError]]] = {
    "a model that is not there": (lambda t: axlm.load(t / "absent"), "absent", errno.ENOENT, FileNotFoundError),
    "a file for a model": (lambda t: axlm.load(t / "file"), "file", errno.ENOTDIR, NotADirectoryError),
    "no config.json": (lambda t: axlm.load(t / "folder"), "folder/config.json", errno.ENOENT, FileNotFoundError),
    "the core's own folder": (
        lambda t: axlm.utils.load_model(t / "absent"),
        "absent",
        errno.ENOENT,
        FileNotFoundError,
    ),
    "a manifest's folder": (
        lambda t: _bridge.manifest(str(t / "absent"), False),
        "absent",
        errno.ENOENT,
        FileNotFoundError,
    ),
    "a prompt cache": (
        lambda t: load_prompt_cache(t / "absent.safetensors"),
        "absent.safetensors",
        errno.ENOENT,
        FileNotFoundError,
    ),
    "a packed one": (
        lambda t: load_prompt_cache(t / "absent.safetensors.zst"),
        "absent.safetensors.zst",
        errno.ENOENT,
        FileNotFoundError,
    ),
    "a folder to save in": (
        lambda t: save_prompt_cache(str(t / "absent" / "a.safetensors"), [KVCache()]),
        "absent/a.safetensors",
        errno.ENOENT,
        FileNotFoundError,
    ),
    "a folder to save over": (
        lambda t: save_prompt_cache(str(t / "folder.safetensors"), [KVCache()]),
        "folder.safetensors",
        errno.EISDIR,
        IsADirectoryError,
    ),
    "weights that loop": (lambda t: _bridge.manifest(str(t / "loop"), False), "loop", errno.ELOOP, OSError),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.safetensors").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    return tmp_path


@pytest.mark.parametrize("case", CASES)
def test_an_error_tells_number_and_file(case: str, place: Path) -> None:
    call, file, number, kind = CASES[case]
    with pytest.raises(kind) as caught:
        call(place)
    error = caught.value
    assert (error.errno, error.filename) == (number, str(place / file))
    assert "Errno" not in str(error) and str(place / file) in str(error)
    shown = "".join(traceback.format_exception_only(error))
    assert shown == f"{kind.__name__}: {error}\n"


def test_an_error_survives_pickling() -> None:
    error = file_error("nothing there", Path("/x"), errno.EACCES)
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, PermissionError)
    assert (str(again), again.errno, again.filename) == ("nothing there", errno.EACCES, "/x")


def test_no_room_is_enospc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes.shutil, "disk_usage", lambda _: SimpleNamespace(free=1))
    with pytest.raises(OSError, match="has room for") as caught:
        shapes.make("qwen3-4b", tmp_path / "out")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path))
