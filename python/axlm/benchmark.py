"""Measure prompt and generation speed on random tokens, as mlx_lm.benchmark does, and compare both engines."""

from __future__ import annotations

import argparse
import functools
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import _fallback
from ._delegate import delegate, run_as
from .benchmark_report import Difference, Trial, describe, make_report
from .cli_options import UsageError, add_memory, add_ngram
from .suite import command
from .suite.table import write_report

__getattr__, __dir__ = delegate(__name__, "benchmark")


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
        batch: the engine's ``batch_generate``, for :meth:`run_batch`.
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], tuple[Any, Any, dict[str, Any]]],
        stream: Callable[..., Iterable[Any]],
        memory: Callable[[], tuple[int, int]],
        reset_peak: Callable[[], Any],
        batch: Callable[..., Any] | None = None,
    ) -> None:
        self.name = name
        self._stream = stream
        self._batch = batch
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

        def generate() -> Any:
            responses = self._stream(
                self.model, self._tokenizer, list(prompt), max_tokens=tokens, prefill_step_size=prefill_step_size
            )
            response = None
            for index, response in enumerate(responses):
                if look is not None:
                    look(index, response)
            self.stats = getattr(response, "stats", None)
            return response

        return self._measure(generate)

    def run_batch(self, prompts: Sequence[Sequence[int]], tokens: int, prefill_step_size: int) -> Trial:
        """Generate once after each of several prompts at the same time; the speeds are those of all together."""
        rows = [list(prompt) for prompt in prompts]
        options = {"max_tokens": tokens, "prefill_step_size": prefill_step_size}
        return self._measure(lambda: self._batch(self.model, self._tokenizer, rows, **options).stats)

    def _measure(self, generate: Callable[[], Any]) -> Trial:
        """Run what returns something with ``prompt_tps`` and ``generation_tps``."""
        self._reset_peak()
        before, _ = self._memory()
        started = time.perf_counter()
        result = generate()
        ended = time.perf_counter()
        peak = self._weights + self._memory()[1] - before
        return Trial(result.prompt_tps, result.generation_tps, peak / 1e9, ended - started)


def axlm_engine(
    model: str,
    trust_remote_code: bool,
    ngram: dict[str, Any] | bool,
    quantize_activations: bool = False,
    pipeline: bool = False,
) -> Engine:
    """Load ``model`` with axlm; in a distributed run, this process's part of it with mlx_lm."""
    import mlx.core as mx

    from . import _bridge
    from .generate import batch_generate, stream_generate
    from .utils import load

    def memory() -> tuple[int, int]:
        state = _bridge.memory()
        return state["active"], state["peak"]

    options: dict[str, Any] = {"return_config": True, "trust_remote_code": trust_remote_code}
    group = mx.distributed.init()
    if group.size() > 1:
        start = functools.partial(_fallback.load_part, model, group, pipeline, **options)
    else:
        options["tokenizer_config"] = {"trust_remote_code": trust_remote_code}
        if quantize_activations:
            options["model_config"] = {"quantize_activations": True}
        start = functools.partial(load, model, **options)
    stream = functools.partial(stream_generate, ngram=ngram)
    return Engine("axlm", start, stream, memory, _bridge.reset_peak, batch_generate)


def mlx_lm_engine(folder: Path, trust_remote_code: bool, quantize_activations: bool = False) -> Engine:
    """Load the model in ``folder`` with mlx_lm."""
    import mlx.core as mx
    import mlx_lm

    options: dict[str, Any] = {"trust_remote_code": True} if trust_remote_code else {}
    return Engine(
        "mlx_lm",
        lambda: mlx_lm.load(
            str(folder),
            return_config=True,
            tokenizer_config={"trust_remote_code": trust_remote_code},
            model_config={"quantize_activations": True} if quantize_activations else None,
            **options,
        ),
        mlx_lm.stream_generate,
        lambda: (mx.get_active_memory(), mx.get_peak_memory()),
        mx.reset_peak_memory,
        mlx_lm.batch_generate,
    )


def random_prompts(config: dict[str, Any], count: int, tokens: int) -> list[list[int]]:
    """Draw the prompts that mlx_lm.benchmark draws: ``count`` rows of ``tokens`` ids after seed 0."""
    import mlx.core as mx

    vocabulary = config.get("vocab_size") or config["text_config"]["vocab_size"]
    mx.random.seed(0)
    return mx.random.randint(0, vocabulary, (count, tokens)).tolist()


def random_prompt(config: dict[str, Any], tokens: int) -> list[int]:
    """Draw the first row of :func:`random_prompts`."""
    return random_prompts(config, 1, tokens)[0]


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
    """Add the options of mlx_lm.benchmark, and ours."""
    add = parser.add_argument
    add("--model", help="a model folder or Hugging Face repository (default: smollm2-135m, where it is installed)")
    add("-p", "--prompt-tokens", type=int, nargs="+", help="length of the prompt (default: 512; --shape: 128 512)")
    add("-g", "--generation-tokens", type=int, help="tokens to generate (default: 1024; --suite, --shape: 128)")
    add("-b", "--batch-size", type=int, default=1, help="prompts at the same time (default: 1)")
    add("-n", "--num-trials", type=int, help="how often to measure (default: 5; --suite, --shape: 3)")
    add("--pipeline", action="store_true", help="under mlx.launch: split the layers, not the tensors")
    add("-qa", "--quantize-activations", action="store_true", help="quantise activations as the weights are")
    add("--prefill-step-size", type=int, default=2048, help="prompt tokens per forward pass (default: 2048)")
    add("--delay", type=float, default=0, help="seconds to wait before each trial (default: 0)")
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the tokenizer or model")
    add_ngram(parser)
    add_memory(parser)
    add("--compare", choices=("mlx_lm",), help="measure this engine too, in alternation, and compare the tokens")
    add("--json", nargs="?", const="-", metavar="FILE", help="write the report as JSON, without FILE in place of lines")
    command.add_arguments(parser)


def _check(args: argparse.Namespace) -> None:
    """Fill in defaults, and refuse what measures nothing."""
    if len(args.prompt_tokens or ()) > 1:
        raise UsageError("several --prompt-tokens go with --shape only")
    args.prompt_tokens = args.prompt_tokens[0] if args.prompt_tokens else 512
    args.generation_tokens = 1024 if args.generation_tokens is None else args.generation_tokens
    args.num_trials = 5 if args.num_trials is None else args.num_trials
    for name in ("prompt_tokens", "generation_tokens", "num_trials", "batch_size", "prefill_step_size"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1")


def run(args: argparse.Namespace) -> int:
    """Measure and print; return the exit code."""
    if args.suite or args.shape:
        return command.run(args)
    _check(args)
    import mlx.core as mx

    silent = args.json == "-" or mx.distributed.init().rank() > 0

    def say(text: str) -> None:
        if not silent:
            print(text, flush=True)

    from .generate import DEFAULT_MODEL
    from .utils import resolve

    name = args.model or DEFAULT_MODEL
    ours = axlm_engine(name, args.trust_remote_code, args.ngram, args.quantize_activations, args.pipeline)
    engines = [ours]
    prompts = random_prompts(ours.config, args.batch_size, args.prompt_tokens)
    tokens, step = args.generation_tokens, args.prefill_step_size
    say("Running warmup..")
    difference = None
    if args.compare:
        folder = getattr(ours.model, "path", None) or resolve(name)
        engines.append(mlx_lm_engine(folder, args.trust_remote_code, args.quantize_activations))

    def measure(engine: Engine) -> Trial:
        if len(prompts) > 1:
            return engine.run_batch(prompts, tokens, step)
        return engine.run(prompts[0], tokens, step)

    if len(engines) == 2 and len(prompts) == 1:
        difference = compare_tokens(*engines, prompts[0], tokens, step)
    else:
        for engine in engines:
            measure(engine)
    sizes = f"prompt_tokens={args.prompt_tokens}, generation_tokens={tokens}"
    say(f"Timing with {sizes}, batch_size={args.batch_size}.")
    trials: dict[str, list[Trial]] = {engine.name: [] for engine in engines}
    for number in range(1, args.num_trials + 1):
        # Whoever comes second finds a warmer machine: take turns at that as well.
        for engine in engines if number % 2 else reversed(engines):
            time.sleep(args.delay)
            gc.collect()
            trial = measure(engine)
            trials[engine.name].append(trial)
            label = f"Trial {number}: " + (f" {engine.name:6}" if args.compare else "")
            say(f"{label} " + ", ".join(f"{key}={value:.3f}" for key, value in asdict(trial).items()))
    if mx.distributed.init().rank() == 0:
        path = str(getattr(ours.model, "path", name))
        load_peaks = {engine.name: engine.load_peak for engine in engines}
        write_report(make_report(args, path, ours.stats, trials, load_peaks, difference), describe, args.json)
    return 0


if __name__ == "__main__":
    run_as("benchmark")
