"""Models by their names on the Hugging Face hub: from its cache, from a hub, and what is said when that fails.

huggingface_hub reads its settings when it is imported, hence the subprocesses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures import hub

Tiny = Callable[[str], Path]
REPO = "somebody/tiny-llama"
WORDS = ["-m", "axlm", "generate", "-p", "hello", "-m", "4", "--verbose", "F", "--model"]


def run(home: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with an HF_HOME of its own."""
    env = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0", **environment}
    for name in ("HF_TOKEN", "HF_HUB_CACHE"):
        env.pop(name, None)
    return subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True, check=False, timeout=120)


def said(result: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that failed."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("axlm generate: ")]
    assert result.returncode == 1 and len(lines) == 1 and "Traceback" not in result.stderr, result.stderr
    return lines[0]


@pytest.fixture(scope="module")
def text(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the model writes when it is loaded from its folder."""
    result = run(tmp_path_factory.mktemp("unused"), *WORDS, str(tiny("llama-nano-f32")))
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_cache_is_enough_offline(tiny: Tiny, text: str, tmp_path: Path) -> None:
    hub.lay_out(tmp_path, REPO, tiny("llama-nano-f32"))
    result = run(tmp_path, *WORDS, REPO, HF_HUB_OFFLINE="1")
    assert (result.returncode, result.stdout) == (0, text), result.stderr


def test_the_cache_is_enough_where_no_hub_can_be_reached(tiny: Tiny, text: str, tmp_path: Path) -> None:
    hub.lay_out(tmp_path, REPO, tiny("llama-nano-f32"))
    result = run(tmp_path, *WORDS, REPO, HF_ENDPOINT="http://127.0.0.1:9")
    assert (result.returncode, result.stdout) == (0, text), result.stderr


def test_a_revision_has_its_own_snapshot(tiny: Tiny, tmp_path: Path) -> None:
    code = (
        "import json, sys, axlm\n"
        "def path(**options): return str(axlm.load(sys.argv[1], **options)[0].path)\n"
        "print(json.dumps([path(), path(revision='v2')]))"
    )
    folder = tiny("llama-nano-f32")
    main = hub.lay_out(tmp_path, REPO, folder)
    other = hub.lay_out(tmp_path, REPO, folder, revision="v2", commit="1" * 40)
    result = run(tmp_path, "-c", code, REPO, HF_HUB_OFFLINE="1")
    assert result.returncode == 0, result.stderr
    assert [Path(path).resolve() for path in json.loads(result.stdout)] == [main.resolve(), other.resolve()]


def test_what_is_not_there_is_downloaded_once(tiny: Tiny, text: str, tmp_path: Path) -> None:
    with hub.served({REPO: {"main": tiny("llama-nano-f32")}}) as address:
        first = run(tmp_path, *WORDS, REPO, HF_ENDPOINT=address)
    assert (first.returncode, first.stdout) == (0, text), first.stderr
    assert "%|" in first.stderr  # huggingface_hub's bars
    again = run(tmp_path, *WORDS, REPO, HF_HUB_OFFLINE="1")
    assert (again.returncode, again.stdout) == (0, text), again.stderr
    snapshot = tmp_path / "hub" / "models--somebody--tiny-llama" / "snapshots" / hub.commit_of("main")
    assert not (snapshot / ".fixture").exists()  # only what a model folder is made of


def test_what_cannot_be_had_is_one_line(tiny: Tiny, tmp_path: Path) -> None:
    begin = f"axlm generate: no folder '{REPO}' here, and the Hugging Face hub did not give a model of that name: "
    offline = said(run(tmp_path, *WORDS, REPO, HF_HUB_OFFLINE="1"))
    assert offline == f"{begin}HF_HUB_OFFLINE is set, and it was not downloaded before"
    unreachable = said(run(tmp_path, *WORDS, REPO, HF_ENDPOINT="http://127.0.0.1:9"))
    assert unreachable.startswith(f"{begin}the hub cannot be reached (")
    with hub.served({}, {REPO: "GatedRepo"}) as address:
        assert "access to it must be granted" in said(run(tmp_path, *WORDS, REPO, HF_ENDPOINT=address))
    with hub.served({}) as address:
        assert said(run(tmp_path, *WORDS, REPO, HF_ENDPOINT=address)).startswith(f"{begin}there is none, or it is")


def test_a_revision_that_is_not_there_is_named(tiny: Tiny, tmp_path: Path) -> None:
    code = "import sys, axlm\ntry: axlm.load(sys.argv[1], revision='v9')\nexcept FileNotFoundError as e: print(e)"
    with hub.served({REPO: {"main": tiny("llama-nano-f32")}}) as address:
        result = run(tmp_path, "-c", code, REPO, HF_ENDPOINT=address)
    assert result.stdout.endswith("it has no revision 'v9'\n"), result.stderr
