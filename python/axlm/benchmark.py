"""Measure prompt and generation speed on random tokens, as mlx_lm.benchmark does, and compare both engines."""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .cli_options import UsageError, ngram
from .suite import command
from .suite.table import write_report

KEYS = ("prompt_tps", "generation_tps", "peak_memory")
"""What is reported: tokens per second, tokens per second, GB (10^9 bytes)."""


@dataclass
class Trial:
    """One measured generation.

    Attributes:
        prompt_tps: prompt tokens per second.
        generation_tps: generated tokens per second.
        peak_memory: GB; the engine's weights plus the most that the run added to them.
        total_time: seconds.
    """

    prompt_tps: float
    generation_tps: float
    peak_memory: float
    total_time: float


@dataclass
class Difference:
    """Where the engines' tokens part.

    Attributes:
        index: of the first token that differs.
        axlm: axlm's token there.
        mlx_lm: mlx_lm's token there.
        margin: by how much mlx_lm's log probability of its own token exceeds that of the next best one. A margin near
            zero is a tie that rounding decides; from there on the texts differ rightly.
    """

    index: int
    axlm: int
    mlx_lm: int
    margin: float


class Engine:
    """One engine with the model loaded.

    Attributes:
        model: the engine's model.
        config: the model's configuration.
        load_peak: the most bytes in use while the model was loaded.
        stats: the engine's own counters of the last run, if it keeps any.

    Args:
        name: shown in reports.
        load: loads the model, gives (model, tokenizer, config).
        stream: the engine's ``stream_generate``.
        memory: gives (active, peak) bytes.
        reset_peak: makes the present use the peak.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], tuple[Any, Any, dict[str, Any]]],
        stream: Callable[..., Iterable[Any]],
        memory: Callable[[], tuple[int, int]],
        reset_peak: Callable[[], Any],
    ) -> None:
        self.name = name
        self._stream = stream
        self._memory = memory
        self._reset_peak = reset_peak
        reset_peak()
        before, _ = memory()
        self.model, self._tokenizer, self.config = load()
        active, peak = memory()
        self.load_peak = peak - before
        self._weights = active - before
        self._tokenizer.eos_token_ids = []  # an end token must not cut a run short
        self.stats: dict[str, Any] | None = None

    def run(
        self, prompt: Sequence[int], tokens: int, prefill_step_size: int, look: Callable[[int, Any], None] | None = None
    ) -> Trial:
        """Generate once.

        Args:
            prompt: token ids.
            tokens: how many tokens to generate.
            prefill_step_size: prompt tokens per forward pass.
            look: called with each (index, response).
        """
        self._reset_peak()
        before, _ = self._memory()
        started = time.perf_counter()
        responses = self._stream(
            self.model, self._tokenizer, list(prompt), max_tokens=tokens, prefill_step_size=prefill_step_size
        )
        response = None
        for index, response in enumerate(responses):
            if look is not None:
                look(index, response)
        ended = time.perf_counter()
        peak = self._weights + self._memory()[1] - before
        self.stats = getattr(response, "stats", None)
        return Trial(response.prompt_tps, response.generation_tps, peak / 1e9, ended - started)


def axlm_engine(model: str, trust_remote_code: bool, ngram: dict[str, Any] | bool) -> Engine:
    """Load ``model`` with axlm."""
    from . import _bridge
    from .generate import stream_generate
    from .utils import load

    def memory() -> tuple[int, int]:
        state = _bridge.memory()
        return state["active"], state["peak"]

    return Engine(
        "axlm",
        lambda: load(
            model,
            return_config=True,
            tokenizer_config={"trust_remote_code": trust_remote_code},
            trust_remote_code=trust_remote_code,
        ),
        functools.partial(stream_generate, ngram=ngram),
        memory,
        _bridge.reset_peak,
    )


def mlx_lm_engine(folder: Path, trust_remote_code: bool) -> Engine:
    """Load the model in ``folder`` with mlx_lm."""
    import mlx.core as mx
    import mlx_lm

    return Engine(
        "mlx_lm",
        lambda: mlx_lm.load(
            str(folder),
            return_config=True,
            tokenizer_config={"trust_remote_code": trust_remote_code},
            trust_remote_code=trust_remote_code,
        ),
        mlx_lm.stream_generate,
        lambda: (mx.get_active_memory(), mx.get_peak_memory()),
        mx.reset_peak_memory,
    )


def random_prompt(config: dict[str, Any], tokens: int) -> list[int]:
    """Draw the prompt that mlx_lm.benchmark draws: ``tokens`` ids after seed 0."""
    import mlx.core as mx

    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    mx.random.seed(0)
    return mx.random.randint(0, vocabulary, (1, tokens)).tolist()[0]


def compare_tokens(ours: Engine, theirs: Engine, prompt: Sequence[int], tokens: int, step: int) -> Difference | None:
    """Generate with both and find where their tokens part; also serves as the warm-up."""
    expected: list[int] = []
    ours.run(prompt, tokens, step, lambda _, response: expected.append(response.token))
    found: list[Difference] = []

    def check(index: int, response: Any) -> None:
        if found or (index < len(expected) and expected[index] == response.token):
            return
        import mlx.core as mx

        best = mx.sort(response.logprobs.astype(mx.float32))[-2:].tolist()
        token = expected[index] if index < len(expected) else -1
        found.append(Difference(index, token, response.token, best[1] - best[0]))

    theirs.run(prompt, tokens, step, check)
    return found[0] if found else None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of mlx_lm.benchmark that apply, and ours."""
    add = parser.add_argument
    add("--model", help="a model folder or Hugging Face repository (default: smollm2-135m, where it is installed)")
    add("-p", "--prompt-tokens", type=int, nargs="+", help="length of the prompt (default: 512; --shape: 128 512)")
    add("-g", "--generation-tokens", type=int, help="tokens to generate (default: 1024; --suite, --shape: 128)")
    add("-b", "--batch-size", type=int, default=1, help="only 1 is supported yet")
    add("-n", "--num-trials", type=int, help="how often to measure (default: 5; --suite, --shape: 3)")
    add("--prefill-step-size", type=int, default=2048, help="prompt tokens per forward pass (default: 2048)")
    add("--delay", type=float, default=0, help="seconds to wait before each trial (default: 0)")
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the tokenizer or model")
    add(
        "--ngram",
        type=ngram,
        default=True,
        metavar="BOOL|JSON",
        help="n-gram speculation, or its settings (default: T)",
    )
    add("--compare", choices=("mlx_lm",), help="measure this engine too, in alternation, and compare the tokens")
    add("--json", nargs="?", const="-", metavar="FILE", help="write the report as JSON, without FILE in place of lines")
    command.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure and print; return the exit code."""
    if args.suite or args.shape:
        return command.run(args)
    if len(args.prompt_tokens or ()) > 1:
        raise UsageError("several --prompt-tokens go with --shape only")
    args.prompt_tokens = args.prompt_tokens[0] if args.prompt_tokens else 512
    args.generation_tokens = 1024 if args.generation_tokens is None else args.generation_tokens
    args.num_trials = 5 if args.num_trials is None else args.num_trials
    if args.batch_size != 1:
        raise UsageError("--batch-size is not supported yet: leave it at 1")
    for name in ("prompt_tokens", "generation_tokens", "num_trials", "prefill_step_size"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1")

    def say(text: str) -> None:
        if args.json != "-":
            print(text, flush=True)

    from .demo import DEFAULT

    ours = axlm_engine(args.model or DEFAULT, args.trust_remote_code, args.ngram)
    engines = [ours]
    prompt = random_prompt(ours.config, args.prompt_tokens)
    say("Running warmup..")
    difference = None
    if args.compare:
        engines.append(mlx_lm_engine(ours.model.path, args.trust_remote_code))
        difference = compare_tokens(*engines, prompt, args.generation_tokens, args.prefill_step_size)
    else:
        ours.run(prompt, args.generation_tokens, args.prefill_step_size)
    sizes = f"prompt_tokens={args.prompt_tokens}, generation_tokens={args.generation_tokens}"
    say(f"Timing with {sizes}, batch_size={args.batch_size}.")
    trials: dict[str, list[Trial]] = {engine.name: [] for engine in engines}
    for number in range(1, args.num_trials + 1):
        # Whoever comes second finds a warmer machine: take turns at that as well.
        for engine in engines if number % 2 else reversed(engines):
            time.sleep(args.delay)
            gc.collect()
            trial = engine.run(prompt, args.generation_tokens, args.prefill_step_size)
            trials[engine.name].append(trial)
            label = f"Trial {number}: " + (f" {engine.name:6}" if args.compare else "")
            say(f"{label} " + ", ".join(f"{key}={value:.3f}" for key, value in asdict(trial).items()))
    report = make_report(args, ours, trials, {engine.name: engine.load_peak for engine in engines}, difference)
    write_report(report, describe, args.json)
    return 0


def make_report(
    args: argparse.Namespace,
    ours: Engine,
    trials: dict[str, list[Trial]],
    load_peaks: dict[str, int],
    difference: Difference | None,
) -> dict[str, Any]:
    """Gather everything measured in one dictionary of JSON types.

    Returns:
        The settings; ``environment``; ``stats``, the core's counters of the last run; ``engines``: by name ``median``,
        ``mean`` and ``trials`` of :class:`Trial`'s fields, and ``load_peak_memory`` in GB. With two engines also
        ``ratios`` of the medians, ``tokens_equal`` and ``first_difference`` (:class:`Difference`'s fields or None).
    """
    from .doctor import environment

    report: dict[str, Any] = {
        "model": str(ours.model.path),
        "prompt_tokens": args.prompt_tokens,
        "generation_tokens": args.generation_tokens,
        "prefill_step_size": args.prefill_step_size,
        "num_trials": args.num_trials,
        "ngram": args.ngram,
        "stats": ours.stats,
        "environment": environment(),
        "engines": {},
    }
    for name, measured in trials.items():
        values = {key: [getattr(trial, key) for trial in measured] for key in KEYS}
        report["engines"][name] = {
            "median": {key: statistics.median(values[key]) for key in KEYS},
            "mean": {key: statistics.fmean(values[key]) for key in KEYS},
            "load_peak_memory": load_peaks[name] / 1e9,
            "trials": [asdict(trial) for trial in measured],
        }
    if len(trials) == 2:
        first, second = (report["engines"][name]["median"] for name in trials)
        report["ratios"] = {key: first[key] / second[key] if second[key] else None for key in KEYS}
        report["tokens_equal"] = difference is None
        report["first_difference"] = asdict(difference) if difference else None
    return report


def describe(report: dict[str, Any]) -> str:
    """Put a report into lines for people."""
    engines = report["engines"]
    lines = []
    if speculation := (report["stats"] or {}).get("speculation"):
        text = "Speculation: {accepted} of {drafted} drafts accepted, in {draft_steps} of {steps} steps"
        lines.append(text.format_map(speculation))
    if "ratios" not in report:
        mean = engines["axlm"]["mean"]
        return "\n".join([*lines, "Averages: " + ", ".join(f"{key}={mean[key]:.3f}" for key in KEYS)])
    lines.append(f"{'medians':10}" + "".join(f"{key:>16}" for key in KEYS))
    for name, engine in engines.items():
        lines.append(f"{name:10}" + "".join(f"{engine['median'][key]:16.3f}" for key in KEYS))
    lines.append(f"{'ratio':10}" + "".join(f"{report['ratios'][key] or float('nan'):16.3f}" for key in KEYS))
    difference = report["first_difference"]
    if difference is None:
        lines.append(f"Tokens: all {report['generation_tokens']} equal")
    else:
        whose = f"axlm {difference['axlm']}, mlx_lm {difference['mlx_lm']}"
        margin = f"{difference['margin']:.4f}"
        lines.append(f"Tokens: first difference at {difference['index']} ({whose}), where mlx_lm's margin is {margin}")
    return "\n".join(lines)
