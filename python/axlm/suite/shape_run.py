"""Time a published shape with random weights on random prompts: mlx_lm, axlm plain and axlm speculating, in turns.

Two modes show both ends of speculation. In "loop" decoding is greedy, and random weights made for it
(:func:`axlm.shapes.make`) fall into a loop, so nearly every draft is right. In "noloop" tokens are sampled at
temperature 1 from a seed, and drafts are hardly ever right.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from .engines import Difference, Run, compare, first_difference, lead
from .run import median, quotient

MODES = ("loop", "noloop")
ENGINES = ("mlx_lm", "plain", "ngram")


class IdEngine(Protocol):
    """What generates token ids past end tokens, greedily or sampling from a seed."""

    name: str

    def run(self, prompt: Sequence[int], tokens: int, seed: int | None = None) -> Run:
        """Generate exactly ``tokens`` tokens: greedily without a seed, at temperature 1 with one."""
        ...

    def margin(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[float, str] | None:
        """See :meth:`axlm.suite.engines.Engine.margin`."""
        ...


class StepEngine:
    """A ``generate_step`` with its model.

    Args:
        name: shown in reports.
        step: axlm's or mlx_lm's ``generate_step``.
        model: its model.
        make_sampler: the ``make_sampler`` that goes with it.
        as_prompt: brings a list of ids to the form that it takes.
        options: further arguments of every call.
    """

    def __init__(
        self,
        name: str,
        step: Callable[..., Any],
        model: Any,
        make_sampler: Callable[..., Any],
        as_prompt: Callable[[list[int]], Any] = list,
        **options: Any,
    ) -> None:
        self.name = name
        self.model = model
        self._step = step
        self._make_sampler = make_sampler
        self._as_prompt = as_prompt
        self._options = options

    def run(self, prompt: Sequence[int], tokens: int, seed: int | None = None) -> Run:
        """See :class:`IdEngine`."""
        options = dict(self._options)
        if seed is not None:
            import mlx.core as mx

            mx.random.seed(seed)
            options["sampler"] = self._make_sampler(temp=1.0)
        before = self._counts()
        clock = time.perf_counter
        ids: list[int] = []
        started = first = clock()
        for token, _ in self._step(self._as_prompt(list(prompt)), self.model, max_tokens=tokens, **options):
            if not ids:
                first = clock()
            ids.append(int(token))
        ended = clock()
        after = self._counts()
        counts = {key: after[key] - before.get(key, 0) for key in after}
        return Run(ids, first - started, ended - first, counts or None)

    def margin(self, prompt: Sequence[int], tokens: Sequence[int]) -> tuple[float, str] | None:
        """See :class:`IdEngine`."""
        ids, logprobs = [], None
        steps = self._step(self._as_prompt(list(prompt)), self.model, max_tokens=len(tokens), **self._options)
        for token, values in steps:
            ids.append(int(token))
            logprobs = values
        return lead(logprobs) if logprobs is not None and ids == list(tokens) else None

    def _counts(self) -> dict[str, int]:
        """The model's counters of speculation so far; empty for engines without."""
        if not self._options.get("ngram"):
            return {}
        counts = self.model.stats().get("ngram", {})
        return {key: counts[key] for key in ("drafted", "accepted", "draft_steps", "steps") if key in counts}


def step_engines(folder: Path, names: Sequence[str], prefill_step_size: int, ngram: dict[str, Any]) -> list[StepEngine]:
    """Load a folder without a tokenizer on those of :data:`ENGINES` that are named."""
    engines = []
    if "mlx_lm" in names:
        import mlx.core as mx
        from mlx_lm.generate import generate_step
        from mlx_lm.sample_utils import make_sampler
        from mlx_lm.utils import load_model

        theirs, _ = load_model(folder)
        engines.append(
            StepEngine("mlx_lm", generate_step, theirs, make_sampler, mx.array, prefill_step_size=prefill_step_size)
        )
    if "plain" in names or "ngram" in names:
        from ..generate import generate_step
        from ..sample_utils import make_sampler
        from ..utils import load_model

        ours, _ = load_model(folder)
        for name, option in (("plain", False), ("ngram", ngram)):
            if name in names:
                options = {"prefill_step_size": prefill_step_size, "ngram": option}
                engines.append(StepEngine(name, generate_step, ours, make_sampler, **options))
    return engines


def repetition(prompt: Sequence[int], tokens: Sequence[int]) -> float:
    """Return the share of tokens that the last two before them were followed by when those occurred before."""
    followers: dict[tuple[int, int], int] = {}
    text = [*prompt, *tokens]
    hits = 0
    for index in range(2, len(text)):
        pair = (text[index - 2], text[index - 1])
        hits += index >= len(prompt) and followers.get(pair) == text[index]
        followers[pair] = text[index]
    return hits / len(tokens) if tokens else 0.0


def measure_shape(
    engines: Sequence[IdEngine],
    prompts: Sequence[Sequence[int]],
    modes: Sequence[str],
    *,
    tokens: int,
    trials: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[dict[str, Any]]:
    """Time each mode on each prompt, once cold and ``trials`` times in turns.

    Args:
        engines: what to time; the first one's tokens are what the others' are compared with.
        prompts: token ids.
        modes: of :data:`MODES`.
        tokens: how many to generate.
        trials: how often.
        progress: called with (runs done, runs in all).

    Returns:
        An entry for each mode and prompt: ``mode``, ``prompt_tokens``, ``tokens``, ``repetition`` (of the first engine,
        see :func:`repetition`), ``differences``, and by engine ``decode_tps`` and ``prompt_tps`` (medians of
        ``trials``), ``cold_seconds`` (the first run, all of it), and what became of drafts.
    """
    done, total = 0, len(modes) * len(prompts) * len(engines) * (trials + 1)
    progress(done, total)
    entries = []
    for mode in modes:
        for prompt in prompts:
            runs: dict[str, list[Run]] = {engine.name: [] for engine in engines}
            differences: dict[str, Difference] = {}
            for number in range(trials + 1):
                seed = None if mode == "loop" else number
                for engine in engines if number % 2 == 0 else reversed(engines):
                    gc.collect()
                    runs[engine.name].append(engine.run(prompt, tokens, seed))
                    done += 1
                    progress(done, total)
                expected = runs[engines[0].name][-1].tokens
                for engine in engines[1:]:
                    found = _compare(engines[0], prompt, expected, runs[engine.name][-1], engine.name, mode)
                    if found and engine.name not in differences:
                        differences[engine.name] = found
            entries.append(_entry(mode, prompt, tokens, runs, list(differences.values())))
    return entries


def _compare(
    first: IdEngine, prompt: Sequence[int], expected: Sequence[int], run: Run, name: str, mode: str
) -> Difference | None:
    if mode == "loop":
        return compare(first, prompt, expected, run, name)
    # Sampling chooses by where a random number falls, not by the best token: the lead over the next says nothing.
    found = first_difference(expected, run.tokens)
    return Difference(name, *found, None, False) if found else None


def _entry(
    mode: str, prompt: Sequence[int], tokens: int, runs: dict[str, list[Run]], differences: list[Difference]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"mode": mode, "prompt_tokens": len(prompt), "tokens": tokens}
    first = next(iter(runs.values()))
    entry["repetition"] = median(repetition(prompt, run.tokens) for run in first)
    entry["engines"] = {}
    for name, (cold, *warm) in runs.items():
        entry["engines"][name] = {
            "decode_tps": median(run.decode_tps for run in warm),
            "prompt_tps": median(quotient(len(prompt), run.prompt_seconds) for run in warm),
            "trials": [run.decode_tps for run in warm],
            "cold_seconds": cold.prompt_seconds + cold.decode_seconds,
            "speculation": _sum([run.speculation for run in warm]),
        }
    speeds = {name: engine["decode_tps"] for name, engine in entry["engines"].items()}
    prefills = {name: engine["prompt_tps"] for name, engine in entry["engines"].items()}
    entry["ratios"] = {
        f"{name}/{base}": {
            "decode_tps": quotient(speeds[name], speeds[base]),
            "prompt_tps": quotient(prefills[name], prefills[base]),
        }
        for name, base in (("plain", "mlx_lm"), ("ngram", "mlx_lm"), ("ngram", "plain"))
        if name in speeds and base in speeds
    }
    entry["differences"] = [asdict(difference) for difference in differences]
    return entry


def _sum(counts: Sequence[dict[str, Any] | None]) -> dict[str, int] | None:
    known = [count for count in counts if count]
    return {key: sum(count[key] for count in known) for key in known[0]} if known else None


def describe_shape(report: dict[str, Any]) -> str:
    """Put a report of a shape into lines for people."""
    from .table import columns, describe_cost, describe_difference, number

    rows = [["mode", "prompt", "engine", "prompt tok/s", "decode tok/s", "/mlx_lm", "/plain", "accepted", "repeats"]]
    for entry in report["entries"]:
        for name, engine in entry["engines"].items():
            counts = engine["speculation"] or {}
            share = quotient(counts.get("accepted"), counts.get("drafted"))
            rows.append(
                [
                    entry["mode"],
                    str(entry["prompt_tokens"]),
                    name,
                    number(engine["prompt_tps"]),
                    number(engine["decode_tps"]),
                    *(
                        number(entry["ratios"].get(f"{name}/{base}", {}).get("decode_tps"), 2, "×")
                        for base in ("mlx_lm", "plain")
                    ),
                    number(None if share is None else 100 * share, 0, " %"),
                    number(100 * entry["repetition"], 0, " %"),
                ]
            )
    lines = [*columns(rows), describe_cost(report["cost"])]
    for entry in report["entries"]:
        for difference in entry["differences"]:
            where = f"{entry['mode']} after {entry['prompt_tokens']} tokens, {difference['engine']}"
            lines.append(describe_difference(where, difference))
    return "\n".join(line for line in lines if line)
