"""What axlm tells to install can be installed: packages that an index has, in the versions that axlm wants."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path

import axlm
import pytest
from axlm import _bridge, _delegate, _install, _plot, demo, doctor

PACKAGE = Path(axlm.__file__).parent
ROOT = Path(__file__).resolve().parent.parent


def test_commands_name_what_axlm_requires() -> None:
    mlx = importlib.metadata.version("mlx")
    assert _install.command(extra="cpu") == f'pip install "mlx-cpu=={mlx}"'
    assert _install.command(extra="cuda13") == f'pip install "mlx-cuda-13=={mlx}"'
    assert _install.command(package="mlx") == f'pip install "mlx=={mlx}"'
    assert _install.command(extra="plot") == 'pip install "matplotlib>=3.8"'
    assert re.fullmatch(r'pip install "datasets" "lm-eval>=[\d.]+"', _install.command(extra="evaluate"))
    assert re.fullmatch(r'pip install "mlx-lm[~=]=0\.3\d\.\d"', _install.command(package="mlx-lm"))


@pytest.mark.parametrize("version", [(3, 10), (3, 11), (3, 14)])
def test_a_requirement_for_another_python_is_not_named(
    version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert ("0.31.3" in _install.command(package="mlx-lm")) == (version == (3, 10))


def test_where_axlm_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(_: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert _install.command(extra="cpu").endswith("[cpu]")
    assert _install.command(package="mlx") == "pip install mlx"


def test_no_text_advises_what_no_index_has() -> None:
    """Neither ``pip install axlm`` nor ``pip install "axlm[…]"``, in the package and the documents."""
    files = [
        *PACKAGE.rglob("*.py"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*"),
        ROOT / "README.md",
        ROOT / "Makefile",
    ]
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.is_file()}
    assert len(texts) > 80
    assert [
        file.name
        for file, text in texts.items()
        if re.search(r"install[^\n]*[\s\"'\\`]axlm(\[|[\"'`\s]*$)", text, re.M)
    ] == []


def advice(call: Callable[[], object]) -> str:
    with pytest.raises(ImportError) as caught:
        call()
    return str(caught.value)


def test_each_error_has_such_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    gone = {"matplotlib", "mlx_lm"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in gone else find(name, *rest))
    monkeypatch.setattr(_bridge, "_find_mlx", lambda: None)
    monkeypatch.setattr(doctor, "_backends", list)
    said = [
        advice(_bridge.libraries),
        advice(doctor._backend),
        advice(_plot.check_available),
        advice(lambda: _delegate._their_folder(axlm)),
        *demo.INSTALL,
    ]
    for text in said:
        assert re.search(r"pip install (--no-deps )?[\"\w]", text) and "axlm[" not in text


@pytest.mark.parametrize("extra", ["cpu", "cuda13", "plot", "demo", "evaluate"])
def test_pip_understands_the_commands(extra: str) -> None:
    from packaging.requirements import Requirement

    words = re.findall(r'"([^"]+)"', _install.command(extra=extra))
    assert words and all(Requirement(word).name for word in words)
