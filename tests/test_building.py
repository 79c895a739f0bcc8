"""Building from the sources: nothing is written beside them, builds may run at once, and notices go with the wheel.

The compilers and go are stand-ins here, which write what setup.py expects of them; that the real ones build what works
is what every other test shows.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

GO = """#!{python}
import os, pathlib, sys
words = sys.argv[1:]
tool = pathlib.Path(__file__).read_text()
if words == ["version"]:
    print("go version go1.99.0 stand-in")
elif words == ["env", "CC"]:
    print("c++")
elif words[-1:] == ["tool"]:
    for name in ("gopy", "goimports"):
        made = pathlib.Path(words[2], name)
        made.write_text(tool)
        made.chmod(0o755)
elif words[:1] == ["gen"]:
    assert pathlib.Path("go.mod").exists() and pathlib.Path("pybridge/pybridge.go").exists()
    work = pathlib.Path(words[2].partition("=")[2])
    work.mkdir()
    work.joinpath("axlmgo.go").write_text("#cgo x\\ngopy gen x\\n")
    for name in ("go.py", "pybridge.py"):
        work.joinpath(name).write_text("# gopy gen x\\ncwd = os.getcwd()\\n")
    work.joinpath("build.py").write_text("")
elif "cgo" in words:
    os.mkdir("_cgo")
elif "-o" in words:
    pathlib.Path(words[words.index("-o") + 1]).write_text("made")
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what a build reads, but for most of the C++ and Python files."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in (
        "setup.py",
        "toolcheck.py",
        "pyproject.toml",
        "go.mod",
        "go.sum",
        "README.md",
        "MANIFEST.in",
        "LICENSE",
    ):
        shutil.copy(ROOT / name, folder)
    shutil.copy(ROOT / "THIRD_PARTY_NOTICES.txt", folder)
    shutil.copytree(ROOT / "pybridge", folder / "pybridge")
    (folder / "gocore").mkdir()
    (folder / "mlxc" / "shim").mkdir(parents=True)
    (folder / "mlxc" / "shim" / "one.cpp").write_text("int one;")
    (folder / "python" / "axlm" / "_native").mkdir(parents=True)
    for name in ("__init__.py", "_version.py", "py.typed", "lora.pyi", "_native/__init__.py"):
        shutil.copy(ROOT / "python" / "axlm" / name, folder / "python" / "axlm" / name)
    return folder


def test_builds_at_once_leave_the_sources_alone(sources: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("go", "c++"):
        (tools / name).write_text(GO.format(python=sys.executable))
        (tools / name).chmod(0o755)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    kept = tmp_path / "kept"
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(scratch)}
    environment |= {"AXLM_BUILD": str(kept), "CXX": "c++", "PYTHONPATH": ""}
    before = contents(sources)
    hook = (
        "import setuptools.build_meta as b, sys; to = sys.argv[1]; b.get_requires_for_build_wheel(); b.build_wheel(to)"
    )
    outputs = [tmp_path / "first", tmp_path / "second"]
    builds = []
    for output in outputs:
        output.mkdir()
        command = [sys.executable, "-c", hook, str(output)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        builds.append(subprocess.Popen(command, cwd=sources, env=environment, **options))
    for build in builds:
        said, _ = build.communicate()
        assert build.returncode == 0, said
    assert contents(sources) == before
    assert list(scratch.iterdir()) == [], "what a build needs for itself is removed"
    assert len(list(kept.rglob("one-*.o"))) == 1
    for output in outputs:
        (wheel,) = output.glob("axlm-*.whl")
        made = output / "unpacked"
        shutil.unpack_archive(wheel, made, "zip")
        names = contents(made)
        assert {"axlm/py.typed", "axlm/lora.pyi", "axlm/_native/axlmgo.py", "axlm/_native/mlx_version"} <= names.keys()
        assert any(name.endswith("licenses/THIRD_PARTY_NOTICES.txt") for name in names)
    first, second = (contents(output / "unpacked") for output in outputs)
    assert first == second


def notices() -> str:
    """The notices that were installed."""
    return importlib.metadata.distribution("axlm").read_text("licenses/THIRD_PARTY_NOTICES.txt") or ""


def test_notices_name_every_module_that_is_linked() -> None:
    form = "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}"
    command = ["go", "list", "-deps", "-f", form, "./pybridge"]
    environment = os.environ | {"CGO_ENABLED": "1", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    modules = dict(line.split(" ", 1) for line in set(listed.splitlines()) if line)
    assert "github.com/ebitengine/purego" in modules
    text = notices()
    for module, folder in modules.items():
        assert f"\n{module}\n====" in text
        (file,) = Path(folder).glob("LICENSE*")
        own = file.read_text(encoding="utf-8").partition("\n------")[
            0
        ]  # what follows is about files that are not linked
        assert own.strip() in text
    for other in ("Go", "github.com/go-python/gopy", "MLX"):
        assert f"\n{other}\n====" in text


def test_the_licence_is_there_too() -> None:
    metadata = importlib.metadata.distribution("axlm")
    assert (metadata.read_text("licenses/LICENSE") or "").startswith("MIT License")
    assert set(metadata.metadata.get_all("License-File") or ()) == {"LICENSE", "THIRD_PARTY_NOTICES.txt"}
