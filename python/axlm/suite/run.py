"""Run the suite: each prompt decoded plainly and speculating, in turns, with tokens compared.

End tokens end a run, as they do for users: a model made to write on past its answer repeats itself, which would
flatter speculation. Runs therefore have different lengths; speed is counted in tokens per second after the first one,
ratios are taken between runs of the same prompt side by side, and a prompt whose answer is shorter than
:data:`LEAST` tokens is compared but not timed.

The first pass over all prompts is reported as "cold": kernels are compiled in it, attention is planned for new lengths,
and speculation learns what its passes cost. The passes after it are reported as what one gets from then on.
"""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .engines import Difference, Engine, Run, compare
from .prompts import CLASSES, Prompt

LEAST = 16
"""Tokens that an answer must have to be timed (or as many as were asked for, if that is less)."""


@dataclass
class Measured:
    """All runs of one prompt.

    Attributes:
        prompt: the prompt.
        prompt_tokens: its length.
        tokens: how many tokens plain decoding generated.
        timed: whether that was enough to be timed.
        cold: each engine's run in the first pass.
        runs: each engine's runs after it.
        differences: where other engines' tokens, or a later plain run's, parted from the first plain run's.
    """

    prompt: Prompt
    prompt_tokens: int
    tokens: int
    timed: bool
    cold: dict[str, Run] = field(default_factory=dict)
    runs: dict[str, list[Run]] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def ratio(self, engine: str, base: str) -> float | None:
        """The median of the speeds of ``engine`` over those of ``base``, run by run."""
        pairs = zip(self.runs.get(engine, ()), self.runs.get(base, ()), strict=False)
        ratios = [quotient(run.decode_tps, other.decode_tps) for run, other in pairs]
        ratios = [ratio for ratio in ratios if ratio is not None]
        return statistics.median(ratios) if ratios and self.timed else None


def quotient(value: float | None, base: float | None) -> float | None:
    """Divide, with None for what is not known."""
    return value / base if value and base else None


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those values that are known."""
    known = [value for value in values if value]
    return math.exp(statistics.fmean(map(math.log, known))) if known else None


def median(values: Iterable[float | None]) -> float | None:
    """The median of those values that are known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def measure(
    engines: Sequence[Engine],
    prompts: Sequence[Prompt],
    encode: Callable[[Sequence[dict[str, str]]], list[int]],
    *,
    tokens: int,
    pairs: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Measured]:
    """Run every prompt on every engine, once cold and ``pairs`` times warm.

    Args:
        engines: the first one is plain decoding, whose tokens are the right ones.
        prompts: what to run.
        encode: turns messages into token ids.
        tokens: the most tokens a run generates.
        pairs: the passes after the first.
        progress: called with (runs done, runs in all).
    """
    plain = engines[0]
    done, total = 0, len(prompts) * len(engines) * (pairs + 1)
    progress(done, total)
    results: list[Measured] = []

    def round_of(ids: list[int], number: int) -> dict[str, Run]:
        """One run on each engine; whoever comes second finds a warmer machine, so they take turns at that as well."""
        nonlocal done
        runs = {}
        for engine in engines if number % 2 == 0 else reversed(engines):
            gc.collect()
            runs[engine.name] = engine.run(ids, tokens)
            done += 1
            progress(done, total)
        return runs

    all_ids = [encode(prompt.messages) for prompt in prompts]
    for number, (prompt, ids) in enumerate(zip(prompts, all_ids, strict=True)):
        runs = round_of(ids, number)
        count = len(runs[plain.name].tokens)
        result = Measured(prompt, len(ids), count, count >= min(LEAST, tokens), cold=runs)
        results.append(result)
        _check(result, plain, ids, runs)
    for result, ids in zip(results, all_ids, strict=True):
        for number in range(pairs):
            runs = round_of(ids, number)
            for name, run in runs.items():
                result.runs.setdefault(name, []).append(run)
            _check(result, plain, ids, runs)
    return results


def _check(result: Measured, plain: Engine, ids: list[int], runs: dict[str, Run]) -> None:
    """Compare tokens with those of the first plain run; one difference an engine is enough."""
    expected = result.cold[plain.name].tokens
    known = {difference.engine for difference in result.differences}
    for name, run in runs.items():
        if name not in known and (difference := compare(plain, ids, expected, run, name)):
            result.differences.append(difference)


def make_report(results: Sequence[Measured], engines: Sequence[str], cost: dict[str, Any] | None) -> dict[str, Any]:
    """Gather what was measured in one dictionary of JSON types.

    Args:
        results: from :func:`measure`.
        engines: their names; the first two are plain decoding and speculation.
        cost: the model's learned costs, from ``model.stats()``.

    Returns:
        ``classes``: for each class the median speeds of ``engines``, ``ratio`` (speculating over plain, the geometric
        mean over the class's prompts; ``lowest`` is the worst prompt's), ``tokens`` counted in one plain pass, what
        became of drafts, and the same speeds and ratio ``cold``. ``geometric_mean`` and ``worst`` of the classes, also
        ``cold``. ``prompts``: each one's figures. ``differences``: of tokens. ``cost``: seconds by width of a pass.
    """
    plain, ngram = engines[:2]
    classes = {}
    for cls in CLASSES:
        members = [result for result in results if result.prompt.cls == cls]
        if members:
            classes[cls] = _summary(members, engines)
    report: dict[str, Any] = {
        "kind": "suite",
        "engines": list(engines),
        "classes": classes,
        "geometric_mean": geometric_mean(entry["ratio"] for entry in classes.values()),
        "worst": _worst({cls: entry["ratio"] for cls, entry in classes.items()}),
        "cold": {
            "geometric_mean": geometric_mean(entry["cold"]["ratio"] for entry in classes.values()),
            "worst": _worst({cls: entry["cold"]["ratio"] for cls, entry in classes.items()}),
        },
        "tokens": sum(entry["tokens"] for entry in classes.values()),
        "prompts": [_prompt_report(result, plain, ngram) for result in results],
        "differences": [
            {"prompt": result.prompt.name, **asdict(difference)}
            for result in results
            for difference in result.differences
        ],
        "cost": cost,
    }
    if "mlx_lm" in engines:
        for engine in (plain, ngram):
            ratios = [entry["over_mlx_lm"][engine] for entry in classes.values()]
            report.setdefault("over_mlx_lm", {})[engine] = geometric_mean(ratios)
    return report


def _worst(ratios: dict[str, float | None]) -> dict[str, Any] | None:
    known = {cls: ratio for cls, ratio in ratios.items() if ratio is not None}
    cls = min(known, key=known.__getitem__, default=None)
    return None if cls is None else {"class": cls, "ratio": known[cls]}


def _summary(members: list[Measured], engines: Sequence[str]) -> dict[str, Any]:
    """What one class's prompts gave."""
    plain, ngram = engines[:2]
    timed = [result for result in members if result.timed]
    ratios = {result.prompt.name: result.ratio(ngram, plain) for result in timed}
    drafts = _drafts(run for result in timed for run in result.runs.get(ngram, ()))
    entry: dict[str, Any] = {
        "prompts": len(timed),
        "too_short": [result.prompt.name for result in members if not result.timed],
        "tokens": sum(result.tokens for result in timed),
        "speeds": {
            name: median(run.decode_tps for result in timed for run in result.runs.get(name, ())) for name in engines
        },
        "ratio": geometric_mean(ratios.values()),
        "lowest": min((ratio for ratio in ratios.values() if ratio is not None), default=None),
        **drafts,
        "cold": {
            "speeds": {name: median(result.cold[name].decode_tps for result in timed) for name in engines},
            "ratio": geometric_mean(
                quotient(result.cold[ngram].decode_tps, result.cold[plain].decode_tps) for result in timed
            ),
        },
    }
    if "mlx_lm" in engines:
        entry["over_mlx_lm"] = {
            name: geometric_mean(result.ratio(name, "mlx_lm") for result in timed) for name in (plain, ngram)
        }
    return entry


def _drafts(runs: Iterable[Run]) -> dict[str, Any]:
    """Add up what became of drafts; None where the core does not tell."""
    counts = [run.speculation for run in runs if run.speculation is not None]
    if not counts:
        return dict.fromkeys(("drafted", "accepted", "acceptance", "verify_steps", "accepted_per_verify_step"))
    drafted, accepted, steps = (
        sum(count.get(key, 0) for count in counts) for key in ("drafted", "accepted", "draft_steps")
    )
    return {
        "drafted": drafted,
        "accepted": accepted,
        "acceptance": accepted / drafted if drafted else None,
        "verify_steps": steps,
        "accepted_per_verify_step": accepted / steps if steps else None,
    }


def _prompt_report(result: Measured, plain: str, ngram: str) -> dict[str, Any]:
    return {
        "name": result.prompt.name,
        "prompt_tokens": result.prompt_tokens,
        "tokens": result.tokens,
        "timed": result.timed,
        "ratio": result.ratio(ngram, plain),
        "decode_tps": {name: [run.decode_tps for run in runs] for name, runs in result.runs.items()},
        "prompt_seconds": {name: [run.prompt_seconds for run in runs] for name, runs in result.runs.items()},
        "cold": {
            name: {"decode_tps": run.decode_tps, "prompt_seconds": run.prompt_seconds}
            for name, run in result.cold.items()
        },
        **_drafts(result.runs.get(ngram, ())),
    }
