"""The suite of real texts: its prompts, measuring, comparing, reports, the plot, the command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axlm import cli
from axlm.suite import CLASSES, Prompt, engines, load_prompts, plot, run, table
from axlm.suite.engines import Run, TextEngine, compare, encode, speculating, text_engines

Tiny = Callable[[str], Path]


# Prompts


def test_every_class_has_prompts() -> None:
    assert set(CLASSES) == {
        "copy_edit",
        "rename",
        "json_reformat",
        "tool_calls",
        "agent_session",
        "summarise_with_quotes",
        "translation",
        "open_chat",
        "story",
        "code_from_scratch",
    }
    prompts = load_prompts()
    assert len({prompt.name for prompt in prompts}) == len(prompts)
    for cls in CLASSES:
        members = [prompt for prompt in prompts if prompt.cls == cls]
        assert len(members) >= 3
        assert all(prompt.name.startswith(f"{cls}/") for prompt in members)
        assert load_prompts([cls]) == members
        assert load_prompts([cls], per_class=2) == members[:2]
    assert load_prompts(["story", "rename"]) == load_prompts(["rename", "story"])


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(ValueError, match="'poem'; there are copy_edit, rename"):
        load_prompts(["story", "poem"])


def test_messages_alternate_between_user_and_assistant() -> None:
    """Templates of some families accept nothing else."""
    for prompt in load_prompts():
        roles = [message["role"] for message in prompt.messages]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"], prompt.name
        assert all(message["content"].strip() == message["content"] != "" for message in prompt.messages), prompt.name


def test_prompts_are_the_same_in_every_process() -> None:
    code = "from axlm.suite import load_prompts; print(ascii(load_prompts()))"
    here = ascii(load_prompts())
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == here


def test_every_text_is_used() -> None:
    everything = "\n".join(message["content"] for prompt in load_prompts() for message in prompt.messages)
    files = sorted((Path(engines.__file__).parent / "texts").iterdir())
    assert len(files) > 10
    for file in files:
        for part in file.read_text(encoding="utf-8").split("=== "):
            content = part.partition("\n")[2] if file.name.startswith("agent_") else part
            assert content.strip("\n") in everything, file.name


def test_loading_prompts_is_cheap() -> None:
    code = (
        "import sys\nfrom axlm.suite import load_prompts\nload_prompts()\n"
        "print(*{'numpy', 'mlx.core', 'mlx_lm', 'transformers', 'matplotlib', 'colorsys'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == ""


def test_prompts_are_short(smollm2: Callable[[], Path]) -> None:
    from mlx_lm.utils import load_tokenizer

    tokenizer = load_tokenizer(smollm2())
    lengths = {prompt.name: len(encode(tokenizer, prompt.messages)) for prompt in load_prompts()}
    assert max(lengths.values()) <= 700, lengths
    assert min(lengths.values()) >= 20, lengths


# Measuring, on engines that tell what time they took


@dataclass
class FakeEngine:
    """Generates ``script`` after any prompt, at ``speeds`` in turn."""

    name: str
    script: list[int]
    speeds: list[float] = field(default_factory=lambda: [100.0])
    speculation: dict[str, Any] | None = None
    logprobs: tuple[float, str] | None = (0.5, "float32")
    replays: list[list[int]] = field(default_factory=list)

    def run(self, prompt: Sequence[int], tokens: int) -> Run:
        order.append(self.name)
        ids = self.script[:tokens]
        speed = self.speeds.pop(0) if len(self.speeds) > 1 else self.speeds[0]
        return Run(ids, 0.25, (len(ids) - 1) / speed, self.speculation)

    def margin(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[float, str] | None:
        self.replays.append(list(tokens))
        return self.logprobs


order: list[str] = []
LONG = list(range(40))


@pytest.fixture(autouse=True)
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting garbage between runs takes longer than what these tests measure."""
    monkeypatch.setattr("axlm.suite.run.gc.collect", lambda: 0)


def measured(plain: FakeEngine, *others: FakeEngine, classes: Sequence[str] = ("story",), pairs: int = 2) -> Any:
    """A report on two prompts of each class."""
    order.clear()
    prompts = [Prompt(f"{cls}/{name}", cls, ({"role": "user", "content": name},)) for cls in classes for name in "ab"]
    names = [plain.name, *(engine.name for engine in others)]
    results = run.measure([plain, *others], prompts, lambda messages: [1, 2, 3], tokens=32, pairs=pairs)
    report = run.make_report(results, names, {"widths": [{"width": 1, "seconds": 0.01, "samples": 9}]})
    return json.loads(json.dumps(report))


def test_engines_take_turns() -> None:
    ticks: list[tuple[int, int]] = []
    prompts = [Prompt(f"story/{name}", "story", ()) for name in "ab"]
    order.clear()
    run.measure(
        [FakeEngine("plain", LONG), FakeEngine("ngram", LONG)],
        prompts,
        lambda messages: [1],
        tokens=32,
        pairs=2,
        progress=lambda done, total: ticks.append((done, total)),
    )
    plain_first, ngram_first = ["plain", "ngram"], ["ngram", "plain"]
    assert order == (plain_first + ngram_first) * 3
    assert ticks == [(done, 12) for done in range(13)]


def test_a_report_has_the_ratio_of_each_class() -> None:
    counts = {"drafted": 10, "accepted": 8, "draft_steps": 2}
    # Cold 10 and 20, then two pairs for each prompt: 2×, 4× and 1×, 3×.
    plain = FakeEngine("plain", LONG, [10.0, 20.0, 100.0, 100.0, 100.0, 100.0])
    ngram = FakeEngine("ngram", LONG, [30.0, 20.0, 200.0, 400.0, 100.0, 300.0], counts)
    report = measured(plain, ngram)
    story = report["classes"]["story"]
    assert story["ratio"] == pytest.approx((3 * 2) ** 0.5)
    assert story["lowest"] == pytest.approx(2)
    assert story["speeds"] == pytest.approx({"plain": 100, "ngram": 250})
    assert story["cold"]["ratio"] == pytest.approx(3**0.5)
    assert story["cold"]["speeds"] == pytest.approx({"plain": 15, "ngram": 25})
    assert (story["prompts"], story["tokens"], story["too_short"]) == (2, 64, [])
    assert (story["drafted"], story["accepted"], story["verify_steps"]) == (40, 32, 8)
    assert (story["acceptance"], story["accepted_per_verify_step"]) == (0.8, 4)
    assert report["geometric_mean"] == pytest.approx(6**0.5)
    assert report["worst"] == {"class": "story", "ratio": pytest.approx(6**0.5)}
    assert report["cold"]["worst"]["class"] == "story"
    assert (report["kind"], report["engines"], report["tokens"]) == ("suite", ["plain", "ngram"], 64)
    first = report["prompts"][0]
    assert (first["name"], first["prompt_tokens"], first["tokens"], first["timed"]) == ("story/a", 3, 32, True)
    assert first["decode_tps"] == {"plain": pytest.approx([100, 100]), "ngram": pytest.approx([200, 400])}
    assert first["ratio"] == pytest.approx(3) and first["cold"]["plain"]["prompt_seconds"] == 0.25
    assert report["differences"] == []


def test_classes_are_averaged_geometrically() -> None:
    plain = FakeEngine("plain", LONG)
    speeds = [100.0] * 4 + [400.0] * 4 + [100.0] * 4
    report = measured(plain, FakeEngine("ngram", LONG, speeds), classes=("copy_edit", "story"))
    assert report["classes"]["copy_edit"]["ratio"] == pytest.approx(4)
    assert report["classes"]["story"]["ratio"] == pytest.approx(1)
    assert report["geometric_mean"] == pytest.approx(2)
    assert report["worst"] == {"class": "story", "ratio": pytest.approx(1)}


def test_a_third_engine_is_a_rival() -> None:
    report = measured(
        FakeEngine("plain", LONG, [120.0]), FakeEngine("ngram", LONG, [300.0]), FakeEngine("mlx_lm", LONG)
    )
    assert report["classes"]["story"]["over_mlx_lm"] == pytest.approx({"plain": 1.2, "ngram": 3})
    assert report["over_mlx_lm"] == pytest.approx({"plain": 1.2, "ngram": 3})
    text = table.describe_suite(report)
    assert "/mlx_lm" in text and "3.00×" in text
    assert "tokens of mlx_lm: 2 of 2 prompts as plain decoding" in text


def test_short_answers_are_compared_but_not_timed() -> None:
    short = list(range(run.LEAST - 1))
    report = measured(FakeEngine("plain", short), FakeEngine("ngram", [*short[:-1], 99]))
    story = report["classes"]["story"]
    assert story["too_short"] == ["story/a", "story/b"]
    assert (story["ratio"], story["lowest"], story["tokens"], report["geometric_mean"]) == (None, None, 0, None)
    assert report["worst"] is None
    assert len(report["differences"]) == 2
    assert "answers too short to be timed: story/a, story/b" in table.describe_suite(report)


def test_runs_of_one_token_have_no_speed() -> None:
    assert Run([5], 0.1, 0.0).decode_tps is None
    assert Run([5, 6, 7], 0.1, 0.5).decode_tps == 4


# Comparing


@pytest.mark.parametrize(
    ("margin", "near"),
    [
        ((0.0005, "float32"), True),
        ((0.01, "float32"), False),
        ((0.2, "bfloat16"), True),
        ((0.3, "bfloat16"), False),
        ((0.0, "float64"), True),
        (None, False),
    ],
)
def test_a_difference_is_judged_by_the_lead(margin: tuple[float, str] | None, near: bool) -> None:
    plain = FakeEngine("plain", LONG, logprobs=margin)
    found = compare(plain, [1], LONG, Run([*LONG[:7], 99, 98], 0, 1), "ngram")
    assert found is not None
    assert (found.engine, found.index, found.plain, found.other) == ("ngram", 7, 7, 99)
    assert (found.margin, found.near_tie) == (margin[0] if margin else None, near)
    assert plain.replays == [LONG[:8]]


def test_lost_tokens_are_no_near_tie() -> None:
    plain = FakeEngine("plain", LONG, logprobs=(0.0, "float32"))
    found = compare(plain, [1], LONG, Run(LONG[:-1], 0, 1), "ngram")
    assert found is not None and (found.index, found.plain, found.other, found.near_tie) == (39, 39, None, False)
    found = compare(plain, [1], LONG, Run([*LONG, 7], 0, 1), "ngram")
    assert found is not None and (found.index, found.plain, found.other, found.near_tie) == (40, None, 7, False)
    assert compare(plain, [1], LONG, Run(LONG, 0, 1), "ngram") is None


def test_differences_are_reported_once_a_prompt() -> None:
    report = measured(FakeEngine("plain", LONG), FakeEngine("ngram", [0, 1, 9, *LONG]))
    assert [(d["prompt"], d["engine"], d["index"], d["near_tie"]) for d in report["differences"]] == [
        ("story/a", "ngram", 2, False),
        ("story/b", "ngram", 2, False),
    ]
    lines = table.describe_suite(report).splitlines()
    assert "tokens of ngram: 0 of 2 prompts as plain decoding" in lines
    assert "  story/a: token 2 is 9 instead of 2 (NOT A NEAR TIE, margin 0.5000)" in lines


def test_plain_decoding_that_does_not_repeat_itself_is_told() -> None:
    plain = FakeEngine("plain", LONG)
    original = plain.run
    calls = iter(range(100))
    plain.run = lambda prompt, tokens: Run(LONG[:5], 0, 1) if next(calls) else original(prompt, tokens)
    report = measured(plain, FakeEngine("ngram", LONG))
    assert "plain" in {difference["engine"] for difference in report["differences"]}
    assert any(line.startswith("tokens of plain: ") for line in table.describe_suite(report).splitlines())


def test_speculation_is_measured_without_memory_of_other_requests() -> None:
    assert speculating() == {"shared_bytes": 0}
    assert speculating({"min_support": 2, "shared_bytes": 5}) == {"min_support": 2, "shared_bytes": 0}
    with pytest.raises(ValueError, match="'depth' is not a setting"):
        speculating({"depth": 3})


# The table and the plot


def test_the_table_is_aligned() -> None:
    report = measured(FakeEngine("plain", LONG), FakeEngine("ngram", LONG, [150.0]), classes=("copy_edit", "story"))
    lines = table.describe_suite(report).splitlines()
    assert " ".join(lines[0].split()) == "tokens/s plain ngram ratio lowest accepted per pass tokens cold"
    assert lines[1].split() == ["copy_edit", "100.0", "150.0", "1.50×", "1.50×", "–", "–", "64", "1.50×"]
    assert lines[3].split() == ["geometric", "mean", "1.50×", "128", "1.50×"]
    assert len({line.index("×") for line in lines[1:4]}) == 1
    assert "worst class: copy_edit, 1.50×" in lines
    assert "learned cost of a pass, ms by tokens in it: 1: 10.0" in lines


def test_a_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = measured(FakeEngine("plain", LONG), FakeEngine("ngram", LONG, [150.0]), classes=("copy_edit", "story"))
    plot.draw(report, tmp_path / "suite.png")
    data = (tmp_path / "suite.png").read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 5000
    report = measured(FakeEngine("plain", [1]), FakeEngine("ngram", [1]))  # nothing was timed
    plot.draw(report | {"cost": None}, tmp_path / "nothing.png")
    assert (tmp_path / "nothing.png").read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install"):
        plot.draw({}, tmp_path / "suite.png")


# Real engines on a tiny model


@pytest.fixture(scope="module")
def real(tiny: Tiny) -> list[TextEngine]:
    folder = str(tiny("qwen3-f32"))
    return text_engines(
        folder, compare_mlx_lm=True, trust_remote_code=False, prefill_step_size=512, ngram=speculating()
    )


def test_all_engines_generate_the_same_texts(real: list[TextEngine]) -> None:
    prompts = load_prompts(["rename", "story"], per_class=1)
    results = run.measure(real, prompts, lambda messages: encode(real[0].tokenizer, messages), tokens=48, pairs=1)
    cost = real[0].model.stats()["ngram"]["cost"]
    report = json.loads(json.dumps(run.make_report(results, ["plain", "ngram", "mlx_lm"], cost)))
    assert report["differences"] == []
    assert report["classes"].keys() == {"rename", "story"}
    for entry in report["classes"].values():
        assert entry["prompts"] == 1 and entry["tokens"] >= run.LEAST
        assert all(speed > 0 for speed in entry["speeds"].values()) and entry["ratio"] > 0
        assert entry["drafted"] is not None and entry["over_mlx_lm"]["plain"] > 0
    assert report["cost"]["widths"][0]["width"] == 1
    assert "geometric mean" in table.describe_suite(report)


def test_end_tokens_end_a_run(real: list[TextEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    for engine in real:
        free = engine.run([5, 6, 7], 12).tokens
        assert len(free) == 12
        with monkeypatch.context() as patch:
            patch.setattr(engine.tokenizer, "_eos_token_ids", {free[4]})
            assert engine.run([5, 6, 7], 12).tokens == free[: free.index(free[4]) + 1]


def test_a_margin_is_plain_decodings_lead(real: list[TextEngine]) -> None:
    tokens = real[0].run([5, 6, 7], 6).tokens
    measured = real[0].margin([5, 6, 7], tokens)
    assert measured is not None and measured[1] == "float32"
    assert measured[0] == pytest.approx(real[2].margin([5, 6, 7], tokens)[0], rel=1e-3)
    assert real[0].margin([5, 6, 7], [*tokens[:-1], tokens[-1] + 1]) is None


def test_messages_without_a_template_are_joined() -> None:
    class Bare:
        def encode(self, text: str, **options: Any) -> list[int]:
            assert not options
            return [ord(letter) for letter in text]

    ids = encode(Bare(), [{"role": "user", "content": "ab"}, {"role": "assistant", "content": "c"}])
    assert "".join(map(chr, ids)) == "ab\n\nc\n\n"


# The command


SUITE = ["benchmark", "--suite", "--classes", "open_chat", "story", "--per-class", "1", "-g", "20", "-n", "1"]


def test_the_command_measures_and_writes(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    assert cli.main([*SUITE, "--model", str(tiny("qwen3-f32")), "--json", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("tokens/s") and "tokens of ngram: 2 of 2 prompts as plain decoding" in out
    assert err.splitlines()[-9:] == [f"suite: {done} of 8 runs" for done in range(9)]
    report = json.loads(file.read_text())
    assert list(report["classes"]) == ["open_chat", "story"]
    assert (report["generation_tokens"], report["num_trials"], report["ngram"]) == (20, 1, {"shared_bytes": 0})
    assert report["environment"]["device"] and Path(report["model"]).name == "qwen3-f32"


def test_the_command_prints_json_alone(tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", str(tiny("qwen3-f32")), "--compare", "mlx_lm", "--json", "--ngram", '{"max_draft_tokens": 3}']
    assert cli.main([*SUITE, *words]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["engines"] == ["plain", "ngram", "mlx_lm"]
    assert report["ngram"] == {"max_draft_tokens": 3, "shared_bytes": 0}


def test_the_command_fails_where_texts_differ(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = TextEngine.run

    def corrupt(self: TextEngine, prompt: Sequence[int], tokens: int) -> Run:
        result = original(self, prompt, tokens)
        if self.name == "ngram":
            result.tokens[3] += 1
        return result

    monkeypatch.setattr(TextEngine, "run", corrupt)
    assert cli.main([*SUITE, "--model", str(tiny("qwen3-f32"))]) == 1
    assert "NOT A NEAR TIE" in capsys.readouterr().out


def test_the_command_draws(tiny: Tiny, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "suite.png"
    assert cli.main([*SUITE, "--model", str(tiny("qwen3-f32")), "--plot", str(file)]) == 0
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_plot_that_cannot_be_drawn_is_told_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("axlm._plot.importlib.util.find_spec", lambda name: None)
    assert cli.main([*SUITE, "--model", "/none", "--plot", "x.png"]) == 1
    assert 'pip install "matplotlib' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--shape", "qwen3-4b"], "--shape"),
        (["-n", "0"], "--num-trials"),
        (["-g", "0"], "--generation-tokens"),
        (["--per-class", "0"], "--per-class"),
        (["-b", "2"], "--batch-size"),
        (["--ngram", "F"], "--ngram"),
        (["-p", "128", "512"], "--prompt-tokens"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["benchmark", "--suite", "--model", "/none", *words]) == 2
    message = capsys.readouterr().err
    assert name in message and message.count("\n") == 1


def test_an_unknown_setting_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["benchmark", "--suite", "--model", "/none", "--ngram", '{"depth": 1}']) == 2
    assert "'depth' is not a setting" in capsys.readouterr().err


def test_several_prompt_lengths_need_a_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["benchmark", "--model", "/none", "-p", "128", "512"]) == 2
    assert "--shape" in capsys.readouterr().err
