"""Chat with a model in the terminal."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import Any

from . import _fallback
from ._delegate import delegate, run_as
from .cli_options import UsageError, add_memory, add_model, add_ngram, add_sampling
from .generate import DEFAULT_MODEL, stream_generate
from .model import Model
from .sample_utils import make_sampler
from .utils import load

__getattr__, __dir__ = delegate(__name__, "chat")

_KEPT_BYTES = 1 << 30
"""What the states of earlier texts may take."""

COMMANDS = "q ends the chat, r forgets it and starts anew, h shows this"


def make_prompt_cache(model: Any, max_kv_size: int | None = None) -> list[Any]:
    """See :func:`axlm.models.cache.make_prompt_cache`."""
    from .models.cache import make_prompt_cache

    return make_prompt_cache(model, max_kv_size)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of mlx_lm.chat, and ours."""
    add = parser.add_argument
    add_model(parser)
    add_sampling(parser)
    add("--seed", type=int, default=0, help="seed of MLX's random numbers (default: 0)")
    add_ngram(parser)
    add_memory(parser)
    add("--max-kv-size", type=int, help="the most tokens that attention remembers")
    add("--prefill-step-size", type=int, default=2048, help="prompt tokens per forward pass (default: 2048)")
    add("-m", "--max-tokens", type=int, default=256, help="the most tokens of an answer, -1: no limit (default: 256)")
    add("--system-prompt", help="the system message for the chat template")
    add("--pipeline", action="store_true", help="under mlx.launch: split the layers, not the tensors")


def run(args: argparse.Namespace) -> int:
    """Talk until the user ends it; return the exit code."""
    import mlx.core as mx

    group = mx.distributed.init()
    say: Callable[..., None] = print if group.rank() == 0 else lambda *_, **__: None
    mx.random.seed(args.seed)
    model, tokenizer = _load(args, group)
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (input() then edits lines and remembers them)
    if isinstance(model, Model):
        model.keep_prefixes(_KEPT_BYTES)  # the system prompt is there again after a new start
    say(f"Chat with {args.model or DEFAULT_MODEL}: {COMMANDS}.")
    cache = make_prompt_cache(model, args.max_kv_size)
    while True:
        try:
            query = input(">> " if group.rank() == 0 else "")
        except EOFError:
            say()
            return 0
        if query == "q":
            return 0
        if query == "r":
            cache = make_prompt_cache(model, args.max_kv_size)
        elif query == "h":
            say(COMMANDS)
        else:
            _answer(args, model, tokenizer, query, cache, say)


def _load(args: argparse.Namespace, group: Any) -> tuple[Any, Any]:
    """Load the model; in a distributed run each process gets its part, from mlx_lm."""
    name = args.model or DEFAULT_MODEL
    if group.size() == 1:
        return load(
            name,
            adapter_path=args.adapter_path,
            tokenizer_config={"trust_remote_code": args.trust_remote_code},
            trust_remote_code=args.trust_remote_code,
        )
    if args.adapter_path is not None:
        raise UsageError("--adapter-path does not go with a distributed run")
    return _fallback.load_part(name, group, args.pipeline, args.trust_remote_code)


def _answer(
    args: argparse.Namespace, model: Any, tokenizer: Any, query: str, cache: list[Any], say: Callable[..., None]
) -> None:
    """Generate one answer. Ctrl-C ends it there; the cache then holds what was said until then."""
    messages = [{"role": "user", "content": query}]
    if args.system_prompt is not None:
        messages.insert(0, {"role": "system", "content": args.system_prompt})
    sampler = make_sampler(
        args.temp,
        args.top_p,
        xtc_probability=args.xtc_probability,
        xtc_threshold=args.xtc_threshold,
        xtc_special_tokens=[*tokenizer.encode("\n"), *tokenizer.eos_token_ids],
    )
    responses = stream_generate(
        model,
        tokenizer,
        tokenizer.apply_chat_template(messages, add_generation_prompt=True),
        max_tokens=args.max_tokens,
        sampler=sampler,
        prompt_cache=cache,
        prefill_step_size=args.prefill_step_size,
        ngram=args.ngram,
    )
    response = None
    try:
        for response in responses:
            say(response.text, end="", flush=True)
    except KeyboardInterrupt:
        responses.close()
    say()
    if response is not None:
        speeds = f"prompt {response.prompt_tps:.1f} tok/s, answer {response.generation_tps:.1f} tok/s"
        say(f"[{response.generation_tokens} tokens, {speeds}, peak memory {response.peak_memory:.2f} GB]")


if __name__ == "__main__":
    run_as("chat")
