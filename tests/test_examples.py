"""The scripts in examples/, each under axlm and, with the name rewritten in its text, under mlx_lm: equal output."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

Tiny = Callable[[str], Path]

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

SCRIPTS: dict[str, tuple[list[str], str]] = {
    "chat": (["--max-tokens", "24"], "hello\nwhat is a lighthouse?\nand a lightship?\n"),
    "stream": (["--max-tokens", "48"], ""),
    "logprobs": (["--max-tokens", "10"], ""),
    "sampler": (["--max-tokens", "40", "--seed", "3"], ""),
    "processor": (["--max-tokens", "40"], ""),
    "prompt_cache": (["--max-tokens", "24"], ""),
    "batch": (["--max-tokens", "24"], ""),
    "perplexity": (["--window", "50"], ""),
    "json_output": ([], ""),
    "benchmark": (["--max-tokens", "16", "--runs", "2"], ""),
}
"""Arguments and standard input of each."""


class Terminal(io.StringIO):
    """Standard input that shows what is read, as a terminal does."""

    def readline(self, *size: int) -> str:  # type: ignore[override]
        line = super().readline(*size)
        print(line, end="")
        return line


def run(package: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> str:
    """Run a script in this process. Returns what it wrote to standard output."""
    file = EXAMPLES / f"{name}.py"
    text = re.sub(r"\baxlm\b", package, file.read_text(encoding="utf-8"))
    options, typed = SCRIPTS[name]
    monkeypatch.setattr(sys, "argv", [str(file), "--model", str(folder), *options])
    monkeypatch.setattr(sys, "stdin", Terminal(typed))
    mx.random.seed(0)
    capsys.readouterr()
    exec(compile(text, str(file), "exec"), {"__name__": "__main__", "__file__": str(file)})
    return capsys.readouterr().out


def test_every_script_is_here() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.py")} == set(SCRIPTS)
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}.py]({name}.py)" in table for name in SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_writes_the_same_under_both_packages(
    tiny: Tiny, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    folder = tiny("qwen3-f32")
    found = run("axlm", name, folder, monkeypatch, capsys)
    assert len(found.split()) >= 4
    assert found == run("mlx_lm", name, folder, monkeypatch, capsys)


def test_a_script_runs_by_itself(tiny: Tiny) -> None:
    command = [sys.executable, str(EXAMPLES / "stream.py"), "--model", str(tiny("qwen3-f32")), "--max-tokens", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "3 tokens, ended by length" in done.stdout and "tokens per second" in done.stderr
