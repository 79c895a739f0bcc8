"""mlx_lm's commands on the core: what they print and write, beside mlx_lm's own."""

from __future__ import annotations

import builtins
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from axlm import cli
from fixtures import hub
from oracle import ours, theirs

Tiny = Callable[[str], Path]
MODEL = "llama-nano-f32"
TEXT = "The sea is wide and the sea is deep; the sea"


def run_theirs(command: str, *words: str) -> None:
    """Run mlx_lm's command in this process."""
    before = sys.argv
    sys.argv = [f"mlx_lm.{command}", *words]
    try:
        importlib.import_module(f"mlx_lm.{command}").main()
    finally:
        sys.argv = before


# generate


@pytest.mark.parametrize("name", ["qwen3-f32", "llama-f32"])
def test_a_seed_gives_the_text_that_it_gives_in_mlx_lm(
    tiny: Tiny, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    texts = set()
    for seed in ("7", "8"):
        words = ["--model", str(tiny(name)), "-p", TEXT, "-m", "24", "--verbose", "F", "--temp", "1", "--seed", seed]
        assert cli.main(["generate", *words]) == 0
        mine = capsys.readouterr().out
        run_theirs("generate", *words)
        assert mine == capsys.readouterr().out
        texts.add(mine)
    assert len(texts) == 2


# cache_prompt, and generate going on from what it saved


CACHES = {
    "plain": [],
    "bounded": ["--max-kv-size", "12"],
    "quantised": ["--kv-bits", "8", "--quantized-kv-start", "0", "--kv-group-size", "32"],
}


@pytest.mark.parametrize("kind", CACHES)
def test_a_saved_prompt_is_that_of_mlx_lm(
    tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    folder = str(tiny("qwen3-f32"))
    texts = []
    files = {name: str(tmp_path / f"{name}.safetensors") for name in ("axlm", "mlx_lm")}
    words = ["--model", folder, "--prompt", TEXT, *CACHES[kind], "--prompt-cache-file"]
    assert cli.main(["cache_prompt", *words, files["axlm"]]) == 0
    assert "Peak memory" in capsys.readouterr().out
    run_theirs("cache_prompt", *words, files["mlx_lm"])
    saved = {name: mx.load(file, return_metadata=True) for name, file in files.items()}
    metadata = [
        {key: text.replace("null", "false") for key, text in what.items()}  # trust_remote_code, before mlx_lm 0.32
        for _, what in saved.values()
    ]
    assert metadata[0] == metadata[1]
    assert saved["axlm"][0].keys() == saved["mlx_lm"][0].keys()
    for name, array in saved["axlm"][0].items():
        assert array.shape == saved["mlx_lm"][0][name].shape and array.dtype == saved["mlx_lm"][0][name].dtype
    quantised = CACHES[kind] if kind == "quantised" else []
    for file in files.values():
        capsys.readouterr()
        words = ["--prompt-cache-file", file, "-p", "was calm", "-m", "12", "--verbose", "F", *quantised]
        assert cli.main(["generate", *words]) == 0
        texts.append(capsys.readouterr().out)
        run_theirs("generate", *words)
        texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1 and len(texts[0]) > 5


def test_a_saved_prompt_must_fit_the_options(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, file = str(tiny("qwen3-f32")), str(tmp_path / "cache.safetensors")
    words = ["--model", folder, "--prompt", "-", "--prompt-cache-file", file, *CACHES["quantised"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", iter_text(TEXT))
        assert cli.main(["cache_prompt", *words]) == 0
    for wrong, name in (
        (["--model", "another"], "--prompt-cache-file"),
        (["--kv-bits", "4", "--kv-group-size", "32"], "--kv-bits"),
        (["--kv-bits", "8"], "--kv-group-size"),
    ):
        capsys.readouterr()
        assert cli.main(["generate", "--prompt-cache-file", file, *wrong]) == 2
        message = capsys.readouterr().err
        assert name in message and message.count("\n") == 1
    assert cli.main(["generate", "--prompt-cache-file", str(tmp_path / "none.safetensors")]) == 1


def iter_text(text: str) -> Any:
    import io

    return io.StringIO(text)


def test_a_draft_model_can_be_named(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", str(tiny("qwen3-f32")), "-p", TEXT, "-m", "12", "--verbose", "F"]
    texts = []
    for draft in ([], ["--draft-model", str(tiny("qwen3-q4")), "--num-draft-tokens", "2"]):
        assert cli.main(["generate", *words, *draft]) == 0
        texts.append(capsys.readouterr().out)
    run_theirs("generate", *words)
    texts.append(capsys.readouterr().out)
    assert len(set(texts)) == 1
    assert cli.main(["generate", *words, "--draft-model", str(tiny("llama-nano-f32"))]) == 2
    message = capsys.readouterr().err
    assert "--draft-model has a vocabulary of" in message and message.count("\n") == 1


# chat


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the user types at the prompts of a chat; at the end of the list, Ctrl-D."""
    lines: list[Any] = []

    def read(_: str) -> str:
        if not lines:
            raise EOFError
        return lines.pop(0)

    monkeypatch.setattr(builtins, "input", read)
    return lines


def turns(folder: Path, queries: list[str], tokens: int, system: str | None = None) -> list[str]:
    """The answers of mlx_lm over the turns of a chat."""
    from mlx_lm.models.cache import make_prompt_cache

    model, tokenizer = theirs(folder)
    cache = make_prompt_cache(model)
    answers = []
    for query in queries:
        messages = [{"role": "user", "content": query}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        answers.append(mlx_lm.generate(model, tokenizer, prompt, max_tokens=tokens, prompt_cache=cache))
    return answers


QUERIES = ["hello, how are you?", "and then?"]


def answers_in(out: str) -> list[str]:
    """What a chat printed for each query, without the figures."""
    lines = out.splitlines(keepends=True)
    assert lines[0].startswith("Chat with ")
    text, answers = "", []
    for line in lines[1:]:
        if line.startswith("[") and " tok/s, peak memory " in line:
            answers.append(text.removesuffix("\n"))
            text = ""
        else:
            text += line
    return answers


@pytest.mark.parametrize("system", [None, "be brief"])
def test_a_chat_is_that_of_mlx_lm(
    tiny: Tiny, typed: list[Any], capsys: pytest.CaptureFixture[str], system: str | None
) -> None:
    folder = tiny("qwen3-f32")
    typed += QUERIES
    words = ["--system-prompt", system] if system else []
    assert cli.main(["chat", "--model", str(folder), "-m", "16", *words]) == 0
    assert answers_in(capsys.readouterr().out) == turns(folder, QUERIES, 16, system)


def test_r_forgets_and_q_ends(tiny: Tiny, typed: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny("qwen3-f32")
    typed += [QUERIES[0], "h", "r", QUERIES[0], "q", "never asked"]
    assert cli.main(["chat", "--model", str(folder), "-m", "9"]) == 0
    out = capsys.readouterr().out
    assert out.count("h shows this") == 2
    first, second = answers_in(out)
    assert second.removeprefix("q ends the chat, r forgets it and starts anew, h shows this\n") == first
    assert typed == ["never asked"]


def test_ctrl_c_ends_an_answer_and_the_chat_goes_on(
    tiny: Tiny, typed: list[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from axlm import chat

    count = 0

    def generate(*words: Any, **options: Any) -> Iterator[Any]:
        nonlocal count
        for response in axlm.stream_generate(*words, **options):
            yield response
            count += 1
            if count == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(chat, "stream_generate", generate)
    typed += QUERIES
    assert cli.main(["chat", "--model", str(tiny("qwen3-f32")), "-m", "9"]) == 0
    assert len(answers_in(capsys.readouterr().out)) == 2 and count > 3


# perplexity


def test_perplexity_is_that_of_mlx_lm(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from axlm import perplexity
    from mlx_lm.perplexity import eval_ppl

    folder = tiny("llama-f32")
    data = mx.array(np.random.default_rng(5).integers(0, 1024, (5, 33)))
    expected = eval_ppl(theirs(folder)[0], data, 2)
    got = perplexity.eval_ppl(ours(folder)[0], data, 2)
    assert all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(got, expected, strict=True))
    asked: list[Any] = []
    monkeypatch.setattr(perplexity, "load_data", lambda tokenizer, *where: asked.append(where) or data)
    capsys.readouterr()
    words = ["--model", str(folder), "--data-path", "texts", "--num-samples", "5", "--sequence-length", "33"]
    assert cli.main(["perplexity", *words, "--batch-size", "2"]) == 0
    assert asked == [("texts", 5, 33)]
    assert f"Perplexity: {got[0]:.3f} ± {got[1]:.3f}" in capsys.readouterr().out


def test_data_sets_need_a_package(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert cli.main(["perplexity", "--model", str(tiny(MODEL))]) == 1
    assert capsys.readouterr().err == "axlm perplexity: data sets need one more package: pip install datasets\n"


def test_the_data_set_can_be_a_local_folder(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("datasets", reason="an extra of its own: pip install axlm[evaluate]")
    texts = [{"text": f"{TEXT} {number}"} for number in range(40)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, texts)))
    words = ["--model", str(tiny(MODEL)), "--data-path", str(tmp_path), "--num-samples", "4"]
    assert cli.main(["perplexity", *words, "--sequence-length", "32"]) == 0
    assert "Data: 4 rows of 32 tokens" in capsys.readouterr().out


# evaluate


def test_evaluation_needs_the_harness(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    # As if it had never been imported; modules are attributes of their packages, too.
    monkeypatch.delitem(sys.modules, "mlx_lm.evaluate", raising=False)
    monkeypatch.delattr("mlx_lm.evaluate", raising=False)
    monkeypatch.delitem(sys.modules, "axlm.evaluate", raising=False)
    assert cli.main(["evaluate", "--model", str(tiny(MODEL)), "--tasks", "arc_easy"]) == 1
    assert capsys.readouterr().err == (
        'axlm evaluate: evaluation needs lm-evaluation-harness: pip install "datasets" "lm-eval>=0.4.9"\n'
    )


@pytest.fixture(scope="module")
def harness() -> Any:
    return pytest.importorskip("lm_eval", reason="an extra of its own: pip install axlm[evaluate]")


class Asked:
    """A request of the harness."""

    def __init__(self, *args: Any) -> None:
        self.args = args


def test_scores_are_those_of_mlx_lm(harness: Any, tiny: Tiny) -> None:
    import axlm.evaluate
    import mlx_lm.evaluate

    folder = str(tiny("qwen3-f32"))
    mine, other = axlm.evaluate.MLXLM(folder, max_tokens=12), mlx_lm.evaluate.MLXLM(folder, max_tokens=12)
    assert isinstance(mine._model, axlm.model.Model) and isinstance(mine, mlx_lm.evaluate.MLXLM)
    pairs = [Asked("The sea is", word) for word in (" wide", " deep and blue", " a")] + [Asked("def main", "():")]
    assert_close(mine.loglikelihood(pairs), other.loglikelihood(pairs))
    texts = [Asked(text) for text in (TEXT, "def main():", "a longer text, of another length")]
    assert np.allclose(mine.loglikelihood_rolling(texts), other.loglikelihood_rolling(texts), rtol=1e-4)
    asked = [Asked(text, {"until": ["e", "\n\n"], "max_gen_toks": 9}) for text in ("hello", "def main():", TEXT)]
    assert mine.generate_until(asked) == other.generate_until(asked)


def assert_close(got: list[tuple[float, bool]], expected: list[tuple[float, bool]]) -> None:
    assert [greedy for _, greedy in got] == [greedy for _, greedy in expected]
    assert np.allclose([score for score, _ in got], [score for score, _ in expected], rtol=1e-4)


def test_a_task_is_evaluated(harness: Any, tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task on local data, of two choices each."""
    rows = [{"question": f"{word} and", "choices": [" then", " never"], "answer": 0} for word in ("now", "here", "so")]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    task = tmp_path / "two_choices.yaml"
    task.write_text(
        "task: two_choices\ndataset_path: json\n"
        f"dataset_kwargs:\n  data_files:\n    test: {data}\n"
        "output_type: multiple_choice\ntest_split: test\ndoc_to_text: '{{question}}'\n"
        "doc_to_target: answer\ndoc_to_choice: choices\nmetric_list:\n  - metric: acc\n"
    )
    words = ["--model", str(tiny(MODEL)), "--tasks", str(task), "--output-dir", str(tmp_path / "out")]
    assert cli.main(["evaluate", *words, "--no-apply-chat-template"]) == 0
    assert "acc,none" in capsys.readouterr().out
    files = list((tmp_path / "out").rglob("eval_*"))
    assert len(files) == 1 and json.loads(files[0].read_text())


# benchmark


def test_a_batch_is_measured(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", str(tiny(MODEL)), "-b", "2", "-p", "8", "-g", "4", "-n", "1", "--compare", "mlx_lm"]
    assert cli.main(["benchmark", *words]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ratio")


# Commands and the hub's cache


def test_chat_takes_a_name_of_the_hub(
    tiny: Tiny, typed: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.lay_out(tmp_path, "somebody/tiny", tiny("qwen3-f32"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    typed += QUERIES[:1]
    assert cli.main(["chat", "--model", "somebody/tiny", "-m", "16"]) == 0
    assert answers_in(capsys.readouterr().out) == turns(tiny("qwen3-f32"), QUERIES[:1], 16)
