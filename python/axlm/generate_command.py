"""Generate text from a prompt, through the model's chat template if it has one."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .cli_options import UsageError, json_object, ngram

_UNSUPPORTED = {
    "max_kv_size": None,
    "prompt_cache_file": None,
    "quantize_activations": False,
    "kv_bits": None,
    "draft_model": None,
    "adapter_path": None,
}
"""Options that the core cannot honour yet, with the value at which they ask for nothing."""


def _truth(text: str) -> bool:
    return text.lower() not in ("false", "f")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of mlx_lm.generate that apply."""
    add = parser.add_argument
    add("--model", help="a model folder or Hugging Face repository (default: smollm2-135m, where it is installed)")
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the tokenizer or model")
    add("--adapter-path", help="not supported yet")
    add("--extra-eos-token", nargs="+", default=(), metavar="TOKEN", help="further tokens that end the text")
    add("--system-prompt", help="the system message for the chat template")
    add("-p", "--prompt", default="hello", help="the user's message; - reads it from stdin (default: hello)")
    add("--prefill-response", metavar="TEXT", help="how the answer begins; the model goes on from there")
    add("-m", "--max-tokens", type=int, default=100, help="how many tokens to generate, -1: no limit (default: 100)")
    add("--temp", type=float, default=0.0, help="sampling temperature; 0 takes the likeliest token (default: 0)")
    add("--top-p", type=float, default=1.0, help="sample from the likeliest tokens that sum to this probability")
    add("--min-p", type=float, default=0.0, help="drop tokens whose probability is below this part of the best")
    add("--top-k", type=int, default=0, help="sample from so many of the likeliest tokens")
    add("--xtc-probability", type=float, default=0.0, help="how often XTC drops the likeliest tokens")
    add("--xtc-threshold", type=float, default=0.1, help="how likely the tokens are that XTC drops (default: 0.1)")
    add("--min-tokens-to-keep", type=int, default=1, help="how many tokens --min-p keeps at least (default: 1)")
    add("--seed", type=int, help="seed of MLX's random numbers")
    add(
        "--ngram",
        type=ngram,
        default=True,
        metavar="BOOL|JSON",
        help="n-gram speculation, or its settings (default: T)",
    )
    add("--ignore-chat-template", action="store_true", help="take the prompt as it is")
    add("--use-default-chat-template", action="store_true", help="accepted for mlx_lm's sake; changes nothing")
    add("--chat-template-config", metavar="JSON", help="further arguments of the chat template, as a JSON object")
    add("--verbose", type=_truth, default=True, metavar="BOOL", help="F prints the text only (default: T)")
    add("--max-kv-size", type=int, help="not supported yet")
    add("--prefill-step-size", type=int, default=2048, help="prompt tokens per forward pass (default: 2048)")
    add("--prompt-cache-file", help="not supported yet")
    add("-qa", "--quantize-activations", action="store_true", help="not supported yet")
    add("--kv-bits", type=int, help="not supported yet")
    add("--kv-group-size", type=int, default=64, help="matters only with --kv-bits")
    add("--quantized-kv-start", type=int, default=5000, help="matters only with --kv-bits")
    add("--draft-model", help="not supported yet")
    add("--num-draft-tokens", type=int, default=3, help="matters only with --draft-model")


def run(args: argparse.Namespace) -> int:
    """Generate and print; return the exit code."""
    for name, neutral in _UNSUPPORTED.items():
        if getattr(args, name) != neutral:
            raise UsageError(f"--{name.replace('_', '-')} is not supported yet: leave it at {neutral}")
    template_options = json_object("--chat-template-config", args.chat_template_config or "{}")

    from .demo import DEFAULT
    from .generate import generate
    from .sample_utils import make_sampler
    from .utils import load

    model, tokenizer = load(
        args.model or DEFAULT,
        tokenizer_config={"trust_remote_code": args.trust_remote_code},
        trust_remote_code=args.trust_remote_code,
    )
    if args.seed is not None:
        import mlx.core as mx

        mx.random.seed(args.seed)
    for token in args.extra_eos_token:
        tokenizer.add_eos_token(token)
    text = generate(
        model,
        tokenizer,
        _prompt_ids(tokenizer, args, template_options),
        verbose=args.verbose,
        max_tokens=args.max_tokens,
        prefill_step_size=args.prefill_step_size,
        ngram=args.ngram,
        sampler=make_sampler(
            args.temp,
            args.top_p,
            args.min_p,
            args.min_tokens_to_keep,
            top_k=args.top_k,
            xtc_probability=args.xtc_probability,
            xtc_threshold=args.xtc_threshold,
            xtc_special_tokens=[*tokenizer.encode("\n"), *tokenizer.eos_token_ids],
        ),
    )
    if not args.verbose:
        print(text)
    return 0


def _prompt_ids(tokenizer: Any, args: argparse.Namespace, template_options: dict[str, Any]) -> list[int]:
    """Build the prompt's token ids from the options."""
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt.replace("\\n", "\n").replace("\\t", "\t")
    templated = tokenizer.has_chat_template and not args.ignore_chat_template
    if templated:
        messages = [{"role": "user", "content": prompt}]
        if args.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": args.system_prompt})
        prefilled = args.prefill_response is not None
        if prefilled:
            messages.append({"role": "assistant", "content": args.prefill_response})
        prompt = tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=not prefilled,
            continue_final_message=prefilled,
            **template_options,
        )
    return tokenizer.encode(prompt, add_special_tokens=not templated)
