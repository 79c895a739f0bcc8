"""Evaluate a model on tasks of lm-evaluation-harness."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._delegate import delegate, run_as
from ._install import command
from .cli_options import json_object
from .generate import batch_generate
from .sample_utils import make_sampler
from .utils import load

if TYPE_CHECKING:
    import mlx.core as mx

DEFAULT_MAX_TOKENS = 8192

_delegated, __dir__ = delegate(__name__, "evaluate")


def __getattr__(name: str) -> Any:
    if name == "MLXLM":
        globals()[name] = _model_class()
        return globals()[name]
    return _delegated(name)


def _theirs() -> Any:
    """mlx_lm.evaluate.

    Raises:
        ImportError: lm-evaluation-harness is not installed.
    """
    try:
        from mlx_lm import evaluate
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "lm_eval":
            raise
        raise ImportError(f"evaluation needs lm-evaluation-harness: {command(extra='evaluate')}") from None
    return evaluate


def _model_class() -> type:
    theirs = _theirs()

    class MLXLM(theirs.MLXLM):
        """A model from :func:`axlm.load` as lm-evaluation-harness sees one; scoring is mlx_lm's, on our model."""

        def __init__(
            self,
            path_or_hf_repo: str,
            max_tokens: int | None = None,
            batch_size: int = 8,
            use_chat_template: bool | None = None,
            trust_remote_code: bool = False,
            sampler: Callable[[mx.array], mx.array] | None = None,
        ) -> None:
            super(theirs.MLXLM, self).__init__()  # mlx_lm's own would load the model with mlx_lm
            self._model, self.tokenizer = load(
                path_or_hf_repo,
                tokenizer_config={"trust_remote_code": trust_remote_code},
                trust_remote_code=trust_remote_code,
            )
            self._max_tokens = max_tokens
            self._batch_size = batch_size
            if use_chat_template is None:
                use_chat_template = self.tokenizer.chat_template is not None
            self.use_chat_template = use_chat_template
            self._sampler = sampler

        def generate_until(self, requests: Sequence[Any]) -> list[str]:
            """Generate a continuation for each request's context, up to one of its stop strings."""
            contexts, options = zip(*(request.args for request in requests), strict=True)
            texts = batch_generate(
                model=self._model,
                tokenizer=self.tokenizer,
                prompts=[
                    self.tokenizer.encode(context, add_special_tokens=not self.use_chat_template)
                    for context in contexts
                ],
                max_tokens=[self._max_tokens or option.get("max_gen_toks", DEFAULT_MAX_TOKENS) for option in options],
                verbose=True,
                sampler=self._sampler,
                prefill_batch_size=self._batch_size,
                completion_batch_size=self._batch_size,
            ).texts
            return [self._answer(text, option["until"]) for text, option in zip(texts, options, strict=True)]

        def _answer(self, text: str, stops: Sequence[str]) -> str:
            """Cut a text at its first stop string, and drop the reasoning before the answer."""
            text = text[: min((at for at in map(text.find, stops) if at >= 0), default=len(text))]
            if self.tokenizer.has_thinking:
                _, end, answer = text.partition(self.tokenizer.think_end)
                text = answer if end else text
            return text

    MLXLM.__module__, MLXLM.__qualname__ = __name__, "MLXLM"
    return MLXLM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of mlx_lm.evaluate."""
    add = parser.add_argument
    add("--model", required=True, help="a model folder or Hugging Face repository")
    add("--tasks", nargs="+", required=True, metavar="TASK", help="names of tasks")
    add("--output-dir", default=".", metavar="DIR", help="where the results are written (default: here)")
    add("--batch-size", type=int, default=8, help="sequences at a time (default: 8)")
    add("--num-shots", type=int, help="examples in the prompt; the task's own number without it")
    add("--max-tokens", type=int, help="the most tokens of an answer; the task's own limit without it")
    add("--limit", type=int, help="examples per task; all without it")
    add("--seed", type=int, default=123, help="seed of all random numbers (default: 123)")
    add("--fewshot-as-multiturn", action="store_true", help="give the examples in the prompt as turns of a chat")
    add(
        "--apply-chat-template",
        action=argparse.BooleanOptionalAction,
        help="use the chat template; by default if there is one",
    )
    add("--chat-template-args", metavar="JSON", default="{}", help="further arguments of the chat template")
    add("--confirm-run-unsafe-code", action="store_true", help="allow tasks that run code which the model writes")
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the tokenizer or model")
    add("--temp", type=float, default=0.0, help="sampling temperature; 0 takes the likeliest token (default: 0)")
    add("--top-p", type=float, default=1.0, help="sample from the likeliest tokens that sum to this probability")
    add("--top-k", type=int, default=0, help="sample from so many of the likeliest tokens")


def run(args: argparse.Namespace) -> int:
    """Evaluate, write the results to a file and print them; return the exit code."""
    template_options = json_object("--chat-template-args", args.chat_template_args)
    from . import _bridge

    _bridge.prepare()
    theirs = _theirs()
    import lm_eval
    import mlx.core as mx

    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # or each fork of the harness warns
    folder = Path(args.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    mx.random.seed(args.seed)
    model_class = __getattr__("MLXLM")
    model = model_class(
        args.model,
        max_tokens=args.max_tokens,
        batch_size=args.batch_size,
        use_chat_template=args.apply_chat_template,
        trust_remote_code=args.trust_remote_code,
        sampler=make_sampler(args.temp, args.top_p, top_k=args.top_k),
    )
    model_class.apply_chat_template = theirs.chat_template_fn(**template_options)
    seeds = ("random_seed", "numpy_random_seed", "torch_random_seed", "fewshot_random_seed")
    results = lm_eval.simple_evaluate(
        model=model,
        tasks=args.tasks,
        fewshot_as_multiturn=args.fewshot_as_multiturn,
        apply_chat_template=model.use_chat_template,
        num_fewshot=args.num_shots,
        limit=args.limit,
        confirm_run_unsafe_code=args.confirm_run_unsafe_code,
        **dict.fromkeys(seeds, args.seed),
    )["results"]
    (folder / _file_name(args)).write_text(json.dumps(results, indent=4), encoding="utf-8")
    print("Results:")
    for result in results.values():
        print(json.dumps(result, indent=4))
    return 0


def _file_name(args: argparse.Namespace) -> str:
    """Name the file of the results as mlx_lm does."""
    from importlib.metadata import version

    shots = [] if args.num_shots is None else [f"{args.num_shots:02d}"]
    return "_".join(["eval", args.model, version("lm_eval"), *shots, *args.tasks]).replace("/", "_")


if __name__ == "__main__":
    run_as("evaluate")
