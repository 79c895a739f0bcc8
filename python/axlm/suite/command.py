"""``axlm benchmark --suite`` and ``axlm benchmark --shape``: their options, and what they do."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .._progress import Bar, interactive
from ..cli_options import UsageError
from ..shapes import BITS, NAMES
from .prompts import CLASSES
from .shape_run import ENGINES, MODES

TOKENS = 128
TRIALS = 3
PROMPT_TOKENS = (128, 512)
"""What is measured where the command line says nothing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that benchmark does not have; the others (--model, -g, -n, --json, …) are shared with it."""
    suite = parser.add_argument_group("a suite of real texts", "Speculation against plain decoding, by class of text.")
    suite.add_argument("--suite", action="store_true", help="measure the suite of real texts")
    suite.add_argument(
        "--classes", nargs="+", choices=CLASSES, metavar="CLASS", help=f"only these: {', '.join(CLASSES)}"
    )
    suite.add_argument("--per-class", type=int, metavar="N", help="only the first N prompts of each class")
    suite.add_argument("--plot", type=Path, metavar="FILE", help="draw the result into a PNG file (needs matplotlib)")
    shape = parser.add_argument_group("published shapes", "Speed without the weights: random ones in the same shapes.")
    shape.add_argument("--shape", choices=NAMES, metavar="NAME", help=f"measure a shape: {', '.join(NAMES)}")
    shape.add_argument("--quantize", type=int, choices=BITS, default=BITS[0], help="bits of its weights (default: 4)")
    shape.add_argument(
        "--modes", nargs="+", choices=MODES, default=MODES, help="greedy loops, or sampling (default: both)"
    )
    shape.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES, help="what to measure (default: all)")


def run(args: argparse.Namespace) -> int:
    """Measure and print.

    Returns:
        0, or 1 where tokens differ from plain decoding's and it was no near tie.
    """
    if args.suite and args.shape:
        raise UsageError("--suite and --shape are two measurements: choose one")
    if args.batch_size != 1:
        raise UsageError("--batch-size is not supported yet: leave it at 1")
    for option in ("generation_tokens", "num_trials", "prefill_step_size", "per_class"):
        if (value := getattr(args, option)) is not None and value < 1:
            raise UsageError(f"--{option.replace('_', '-')} must be at least 1")
    if not args.ngram:
        raise UsageError("--ngram F leaves nothing to measure: plain decoding is one of the two sides anyway")
    from .engines import speculating

    measure = _run_suite if args.suite else _run_shape
    return measure(args, speculating(args.ngram))


def _run_suite(args: argparse.Namespace, settings: dict[str, Any]) -> int:
    if args.prompt_tokens is not None:
        raise UsageError("--prompt-tokens does not go with --suite")
    if args.plot is not None:
        from .._plot import check_available

        check_available()
    from ..demo import DEFAULT
    from .engines import encode, text_engines
    from .prompts import load_prompts
    from .run import make_report, measure
    from .table import describe_suite, write_report

    prompts = load_prompts(args.classes, args.per_class)
    engines = text_engines(
        args.model or DEFAULT,
        compare_mlx_lm=args.compare == "mlx_lm",
        trust_remote_code=args.trust_remote_code,
        prefill_step_size=args.prefill_step_size,
        ngram=settings,
    )
    tokens, pairs = args.generation_tokens or TOKENS, args.num_trials or TRIALS
    with _progress("suite") as progress:
        results = measure(
            engines,
            prompts,
            lambda messages: encode(engines[0].tokenizer, messages),
            tokens=tokens,
            pairs=pairs,
            progress=progress,
        )
    report = make_report(results, [engine.name for engine in engines], _cost(engines[0].model))
    report = _heading(args, settings, engines[0].model.path, tokens, pairs) | report
    write_report(report, describe_suite, args.json)
    if args.plot is not None:
        from .plot import draw

        draw(report, args.plot)
    return _verdict(report["differences"])


def _run_shape(args: argparse.Namespace, settings: dict[str, Any]) -> int:
    for option in ("model", "plot", "classes", "per_class"):
        if getattr(args, option) is not None:
            raise UsageError(f"--{option.replace('_', '-')} does not go with --shape")
    lengths = args.prompt_tokens or PROMPT_TOKENS
    lengths = [lengths] if isinstance(lengths, int) else list(lengths)
    if min(lengths) < 1:
        raise UsageError("--prompt-tokens must be at least 1")
    from .. import _bridge

    _bridge.prepare()  # before MLX is imported, so that a fast BLAS can still be chosen
    from ..benchmark import random_prompt
    from ..shapes import cached
    from .shape_run import describe_shape, measure_shape, step_engines
    from .table import write_report

    folder = cached(args.shape, args.quantize)
    engines = step_engines(folder, args.engines, args.prefill_step_size, settings)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tokens, trials = args.generation_tokens or TOKENS, args.num_trials or TRIALS
    with _progress(args.shape) as progress:
        entries = measure_shape(
            engines,
            [random_prompt(config, length) for length in lengths],
            args.modes,
            tokens=tokens,
            trials=trials,
            progress=progress,
        )
    report = _heading(args, settings, folder, tokens, trials)
    report |= {"kind": "shape", "shape": args.shape, "bits": args.quantize, "entries": entries}
    report["cost"] = next((_cost(engine.model) for engine in engines if engine.name != "mlx_lm"), None)
    write_report(report, describe_shape, args.json)
    # Which token a sampler draws may hang on a rounding without there being a tie: those are told, not judged.
    return _verdict(d for entry in entries if entry["mode"] == "loop" for d in entry["differences"])


@contextlib.contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many runs are done: on a bar, or for a log in a line on stderr for every tenth of them."""
    if not interactive():
        tenth = -1

        def log(done: int, total: int) -> None:
            nonlocal tenth
            if 10 * done // total > tenth:
                tenth = 10 * done // total
                print(f"{name}: {done} of {total} runs", file=sys.stderr, flush=True)

        yield log
        return
    bar = Bar(name, "run")
    try:
        yield bar.update
    finally:
        bar.close()


def _heading(
    args: argparse.Namespace, settings: dict[str, Any], model: Path, tokens: int, trials: int
) -> dict[str, Any]:
    from ..doctor import environment

    return {
        "model": str(model),
        "generation_tokens": tokens,
        "num_trials": trials,
        "prefill_step_size": args.prefill_step_size,
        "ngram": settings,
        "environment": environment(),
    }


def _cost(model: Any) -> dict[str, Any] | None:
    """What the model learned about the cost of passes."""
    return model.stats().get("ngram", {}).get("cost")


def _verdict(differences: Iterable[dict[str, Any]]) -> int:
    return 1 if any(not difference["near_tie"] for difference in differences) else 0
