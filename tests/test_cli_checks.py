"""What a command line gets wrong is said before a model is loaded, with the option's name, in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axlm import _bridge, cli

GENERATE = [
    ["--max-tokens", "0"],
    ["--max-tokens", "-2"],
    ["--prefill-step-size", "0"],
    ["--max-kv-size", "0"],
    ["--kv-bits", "7"],
    ["--kv-bits", "8", "--kv-group-size", "48"],
    ["--kv-bits", "8", "--quantized-kv-start", "-1"],
    ["--seed", "-1"],
    ["--temp", "nan"],
    ["--temp", "1", "--top-p", "nan"],
    ["--temp", "1", "--min-p", "2"],
    ["--temp", "1", "--min-p", "0.1", "--min-tokens-to-keep", "0"],
    ["--temp", "1", "--xtc-probability", "2"],
    ["--temp", "1", "--xtc-probability", "1", "--xtc-threshold", "0.6"],
    ["--ngram", '{"max_drafts": 3}'],
    ["--ngram", '{"max_draft_tokens": "3"}'],
    ["--image", "absent.png"],
    ["--adapter-path", "absent"],
    ["--draft-model", "here", "--num-draft-tokens", "-1"],
]
OTHERS = [
    ["chat", "--max-tokens", "0"],
    ["chat", "--max-kv-size", "-3"],
    ["cache_prompt", "--prompt", "a", "--prompt-cache-file", "a.safetensors", "--kv-bits", "1"],
    ["perplexity", "--model", "here", "--num-samples", "0"],
    ["perplexity", "--model", "here", "--seed", "4294967296"],
    ["evaluate", "--model", "here", "--tasks", "t", "--batch-size", "0"],
    ["evaluate", "--model", "here", "--tasks", "t", "--limit", "0"],
    ["benchmark", "--json", "absent/report.json"],
    ["benchmark", "--delay", "-1"],
    ["benchmark", "--suite", "--plot", "absent/plot.png"],
]


@pytest.fixture(autouse=True)
def unloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of nothing, in which loading a model ends the test."""

    def load_start(*_: Any) -> int:
        pytest.fail("a model is loaded")

    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.setattr(_bridge, "load_start", load_start)


def last_option(words: list[str]) -> str:
    return next(word for word in reversed(words) if word.startswith("--"))


@pytest.mark.parametrize(
    "words", [*(["generate", "--model", "here", *words] for words in GENERATE), *OTHERS], ids=" ".join
)
def test_a_wrong_option_is_refused_at_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"axlm {words[0]}: {last_option(words)}") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["generate", "--model", "here", "--draft-model", "no/such folder"], "no/such folder"),
        (["generate", "--model", "here", "--prompt-cache-file", "absent.safetensors"], "absent.safetensors"),
        (["cache_prompt", "--model", "here", "--prompt", "a", "--prompt-cache-file", "absent/a"], "absent"),
    ],
)
def test_so_is_a_file_that_cannot_be(words: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 1
    assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--max-tokens", "-1"],
        ["--min-p", "7"],  # ignored, as in mlx_lm: nothing is drawn
        ["--temp", "1", "--top-k", "-1", "--top-p", "0", "--xtc-threshold", "0.9"],
        ["--kv-group-size", "5"],
        ["--num-draft-tokens", "-1"],  # there is no draft model
    ],
    ids=" ".join,
)
def test_what_mlx_lm_takes_is_taken(words: list[str]) -> None:
    with pytest.raises(pytest.fail.Exception, match="a model is loaded"):
        cli.main(["generate", "--model", "here", *words])
