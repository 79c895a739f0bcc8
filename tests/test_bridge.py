"""The loader of the core: what it needs, what it refuses, and how ids, arrays and errors cross."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from axlm import _bridge
from axlm._crossing import Crossing, address, pack_ids
from axlm.utils import load_model


def run_python(code: str, **env: str) -> str:
    """Run code in a fresh interpreter, outside the source tree, and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.alone
def test_import_is_cheap() -> None:
    code = """
import sys, time
start = time.perf_counter()
import axlm
seconds = time.perf_counter() - start
heavy = {"mlx.core", "mlx_lm", "numpy", "transformers", "axlm._native.axlmgo"} & set(sys.modules)
print(seconds, *heavy)
"""
    best = min((run_python(code).split() for _ in range(3)), key=lambda words: float(words[0]))
    assert best[1:] == []
    assert float(best[0]) <= 0.3


def test_loading_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    code = f"""
import os, sys
os.chdir({str(tmp_path)!r})
before = list(sys.path)
from axlm import _bridge
_bridge.prepare()
assert sys.path == before, sys.path
assert "mlx.core" not in sys.modules
print(os.getcwd())
"""
    assert run_python(code) == str(tmp_path.resolve())


FORK = """
import os
from axlm import _bridge
{before}
child = os.fork()
if child == 0:
    try:
        _bridge.prepare()
        print("works", flush=True)
    except RuntimeError as error:
        print("spawn" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.parametrize(("before", "printed"), [("_bridge.prepare()", "True"), ("", "works")])
def test_fork(before: str, printed: str) -> None:
    assert run_python(FORK.format(before=before)) == printed


def raising(text: str) -> None:
    raise RuntimeError(text)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("ValueError\x1fno such handle", ValueError, "no such handle"),
        ("FileNotFoundError\x1f/x: nothing there", FileNotFoundError, "/x: nothing there"),
        ("MemoryError\x1ftoo large", MemoryError, "too large"),
        ("NotImplementedError\x1fnot yet", NotImplementedError, "not yet"),
        ("RuntimeError\x1fbroken", RuntimeError, "broken"),
        ("a plain text", RuntimeError, "a plain text"),
        ("print\x1fno class", RuntimeError, "no class"),
        ("SystemExit\x1fno error", RuntimeError, "no error"),
    ],
)
def test_errors_get_their_class(text: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        _bridge.call(raising, text)
    assert type(caught.value) is kind
    assert str(caught.value) == message
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "ids",
    [
        [1, 2, 2**31 - 1],
        (1, 2, 2**31 - 1),
        np.array([1, 2, 2**31 - 1]),
        np.array([1, 2, 2**31 - 1], dtype=np.uint32),
        [np.int64(1), np.int32(2), 2**31 - 1],
        mx.array([1, 2, 2**31 - 1]),
        iter([1, 2, 2**31 - 1]),
    ],
)
def test_ids_become_int32(ids: object) -> None:
    assert np.frombuffer(pack_ids(ids).tobytes(), dtype="<i4").tolist() == [1, 2, 2**31 - 1]


@pytest.mark.parametrize(
    ("ids", "kind", "message"),
    [
        ([1, 2.0], TypeError, r"element 1 is 2.0 \(float\)"),
        ([1, True], TypeError, r"element 1 is True \(bool\)"),
        ([1, "2"], TypeError, r"element 1 is '2' \(str\)"),
        ([1, None], TypeError, "element 1 is None"),
        ([[1, 2], [3, 4]], TypeError, r"element 0 is \[1, 2\]"),
        ("12", TypeError, "not str"),
        (np.array([0.5]), TypeError, "element 0 is 0.5"),
        (np.array([True]), TypeError, "element 0 is True"),
        (mx.array([0.5], dtype=mx.bfloat16), TypeError, "element 0 is 0.5"),
        ([1, -2], ValueError, "element 1 is -2"),
        ([1, 2**31], ValueError, f"element 1 is {2**31}"),
        ([-(2**40)], ValueError, f"element 0 is {-(2**40)}"),
        (mx.array([[1, 2]]), ValueError, r"shape \[1, 2\]"),
        (np.array(1), ValueError, r"shape \[\]"),
    ],
)
def test_bad_ids_are_named(ids: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        pack_ids(ids)


@pytest.mark.alone
def test_a_million_ids_pack_fast() -> None:
    """In a few times what a plain copy of the list into a C array takes; a loop in Python takes twenty times that."""
    ids = list(range(1_000_000))

    def seconds(function: Callable[[], object]) -> float:
        start = time.thread_time()
        function()
        return time.thread_time() - start

    assert pack_ids(ids) == array("i", ids)
    copy, packing = (min(seconds(f) for _ in range(5)) for f in (lambda: array("i", ids), lambda: pack_ids(ids)))
    assert packing < 10 * copy


SAMPLES = [
    mx.arange(6).reshape(2, 3),
    mx.array(3.5, dtype=mx.bfloat16),
    mx.array([1.5, -2.0], dtype=mx.float16),
    mx.zeros((2, 0), dtype=mx.float32),
    mx.arange(5, dtype=mx.float32) * 2,
]


def probe(place: int) -> str:
    _bridge.prepare()
    from axlm._native import axlmgo

    return axlmgo.array_probe(place)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.dtype}{sample.shape}")
def test_the_core_reads_a_python_array(sample: mx.array) -> None:
    mx.eval(sample)
    found = json.loads(probe(address(sample)))
    assert found["shape"] == list(sample.shape)
    assert f"mlx.core.{found['dtype']}" == str(sample.dtype)


@pytest.mark.zero_copy
def test_arrays_cross_directly_here() -> None:
    assert Crossing(probe, lambda place: None).direct


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.dtype}{sample.shape}")
def test_arrays_cross_as_copies_where_the_layout_is_another(sample: mx.array) -> None:
    mx.eval(sample)
    lying = {"shape": [], "dtype": "int16", "data": 0}

    def other_layout(place: int) -> str:
        return json.dumps(lying) if place != slot else probe(place)

    def fill(place: int) -> None:
        nonlocal slot
        slot = place
        ctypes.memmove(place, address(sample), 16)  # a C++ array is one shared_ptr; this one is not counted

    def forget(place: int) -> None:
        assert place == slot
        ctypes.memset(place, 0, 16)
        forgotten.append(place)

    slot = 0
    forgotten: list[int] = []
    crossing = Crossing(other_layout, forget)
    received = crossing.receive(fill)
    assert forgotten == [slot]
    assert not crossing.direct
    assert received.dtype == sample.dtype
    assert received.shape == sample.shape
    assert mx.array_equal(received, sample)


@pytest.mark.zero_copy
@pytest.mark.parametrize("name", ["qwen3-f32", "qwen3-bf16"])
def test_logits_are_the_same_both_ways(tiny: Callable[[str], Path], name: str) -> None:
    model, _ = load_model(tiny(name))
    tokens = mx.array([[1, 2, 3, 4, 5]])
    crossing = _bridge._core.arrays
    assert crossing.direct
    direct = model(tokens)
    try:
        crossing._direct = False
        copies = [model(tokens), model(tokens[:, :3]), model(tokens)]
    finally:
        crossing._direct = True
    assert direct.dtype == copies[0].dtype
    assert [copy.shape[1] for copy in copies] == [5, 3, 5]
    assert mx.array_equal(copies[0], direct)
    assert mx.array_equal(copies[2], direct)


def test_other_objects_have_no_array_inside() -> None:
    assert address("text" * 10) == 0


def test_a_missing_backend_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: Spec)
    with pytest.raises(ImportError, match="mlx" if sys.platform == "darwin" else r"pip install .mlx-cpu=="):
        _bridge.libraries()


def test_another_mlx_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(_bridge.LIBRARY, raising=False)
    header = tmp_path / "include" / "mlx" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text(
        "#define MLX_VERSION_MAJOR 9\n#define MLX_VERSION_MINOR 8\n#define MLX_VERSION_PATCH 7\n"
        "#define MLX_VERSION_NUMERIC 1\n"
    )
    with pytest.raises(ImportError, match=r"MLX 9\.8\.7 is installed"):
        _bridge._library(tmp_path)


def test_a_chosen_library_must_exist(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(_bridge.LIBRARY, str(tmp_path / "libmlxc.so"))
    with pytest.raises(ImportError, match=r"AXLM_MLXC=.*libmlxc\.so: no such file"):
        _bridge._library(tmp_path)


BLAS = "import json; from axlm import _bridge; print(json.dumps(_bridge.blas_info()))"


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has one BLAS")
def test_blas_can_be_the_wheels_own() -> None:
    found = json.loads(run_python(BLAS, AXLM_BLAS="reference"))
    assert found == {"name": "reference", "detail": None, "advice": None}


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has one BLAS")
def test_a_late_blas_is_explained() -> None:
    found = json.loads(run_python("import mlx.core; " + BLAS, AXLM_BLAS=""))
    assert found["name"] == "reference"
    assert "import axlm before mlx.core" in found["advice"]


@pytest.mark.skipif(sys.platform != "linux", reason="macOS has one BLAS")
def test_a_blas_that_cannot_be_loaded_is_named() -> None:
    code = """
from axlm import _bridge
try:
    _bridge.prepare()
except ImportError as error:
    print(error)
"""
    assert "AXLM_BLAS=/nowhere/libopenblas.so" in run_python(code, AXLM_BLAS="/nowhere/libopenblas.so")
