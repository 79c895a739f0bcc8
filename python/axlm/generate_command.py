"""Generate text from a prompt, through the model's chat template if it has one."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from .cli_options import UsageError, add_memory, add_model, add_ngram, add_quantized_cache, add_sampling, json_object


def _truth(text: str) -> bool:
    return text.lower() not in ("false", "f")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of mlx_lm.generate, and ours."""
    add = parser.add_argument
    add_model(parser)
    add("--extra-eos-token", nargs="+", default=(), metavar="TOKEN", help="further tokens that end the text")
    add("--system-prompt", help="the system message for the chat template")
    add("-p", "--prompt", default="hello", help="the user's message; - reads it from stdin (default: hello)")
    add("--image", nargs="+", default=(), metavar="FILE", help="images for the prompt's placeholders, in their order")
    add("--prefill-response", metavar="TEXT", help="how the answer begins; the model goes on from there")
    add("-m", "--max-tokens", type=int, default=100, help="how many tokens to generate, -1: no limit (default: 100)")
    add_sampling(parser)
    add("--min-p", type=float, default=0.0, help="drop tokens whose probability is below this part of the best")
    add("--top-k", type=int, default=0, help="sample from so many of the likeliest tokens")
    add("--min-tokens-to-keep", type=int, default=1, help="how many tokens --min-p keeps at least (default: 1)")
    add("--seed", type=int, help="seed of MLX's random numbers")
    add_ngram(parser)
    add_memory(parser)
    add("--ignore-chat-template", action="store_true", help="take the prompt as it is")
    add("--use-default-chat-template", action="store_true", help="accepted for mlx_lm's sake; changes nothing")
    add("--chat-template-config", metavar="JSON", help="further arguments of the chat template, as a JSON object")
    add("--verbose", type=_truth, default=True, metavar="BOOL", help="F prints the text only (default: T)")
    add("--max-kv-size", type=int, help="the most tokens that attention remembers")
    add("--prefill-step-size", type=int, default=2048, help="prompt tokens per forward pass (default: 2048)")
    add("--prompt-cache-file", metavar="FILE", help="go on from what axlm cache_prompt saved")
    add("-qa", "--quantize-activations", action="store_true", help="quantise activations as the weights are")
    add_quantized_cache(parser)
    add("--draft-model", metavar="MODEL", help="a smaller model that drafts tokens for --model to check")
    add("--num-draft-tokens", type=int, default=3, help="how many it drafts at a time (default: 3)")


def run(args: argparse.Namespace) -> int:
    """Generate and print; return the exit code."""
    template_options = json_object("--chat-template-config", args.chat_template_config or "{}")

    from .generate import DEFAULT_MODEL, generate
    from .sample_utils import make_sampler
    from .utils import load, resolve

    if args.draft_model is not None:  # there, before the model is loaded for nothing
        args.draft_model = resolve(args.draft_model)
    if args.seed is not None:  # as early as in mlx_lm: loading draws, too
        import mlx.core as mx

        mx.random.seed(args.seed)
    cache, metadata = _saved_cache(args)
    tokenizer_config = {
        **json.loads(metadata.get("tokenizer_config", "{}")),
        "trust_remote_code": args.trust_remote_code,
    }
    model, tokenizer, config = load(
        args.model or metadata.get("model") or DEFAULT_MODEL,
        tokenizer_config=tokenizer_config,
        model_config={"quantize_activations": True} if args.quantize_activations else None,
        adapter_path=args.adapter_path,
        return_config=True,
        trust_remote_code=args.trust_remote_code,
    )
    for token in args.extra_eos_token:
        tokenizer.add_eos_token(token)
    prompt, templated = _prompt(tokenizer, args, template_options, continued=cache is not None)
    options: dict[str, Any] = {}
    if args.image:
        prompt, options["input_embeddings"] = _with_images(model, tokenizer, config, prompt, templated, args.image)
    else:
        prompt = tokenizer.encode(prompt, add_special_tokens=not templated)
    if args.draft_model is not None:
        options["draft_model"] = _draft_model(args, tokenizer)
        options["num_draft_tokens"] = args.num_draft_tokens
    text = generate(
        model,
        tokenizer,
        prompt,
        verbose=args.verbose,
        max_tokens=args.max_tokens,
        prefill_step_size=args.prefill_step_size,
        max_kv_size=args.max_kv_size,
        prompt_cache=cache,
        kv_bits=args.kv_bits,
        kv_group_size=args.kv_group_size,
        quantized_kv_start=args.quantized_kv_start,
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
        **options,
    )
    if not args.verbose:
        print(text)
    return 0


def _saved_cache(args: argparse.Namespace) -> tuple[Any, dict[str, str]]:
    """Read --prompt-cache-file: (cache, metadata), or (None, {}) without one.

    Raises:
        UsageError: other options contradict it.
    """
    if args.prompt_cache_file is None:
        return None, {}
    from .models.cache import QuantizedKVCache, load_prompt_cache

    cache, metadata = load_prompt_cache(args.prompt_cache_file, return_metadata=True)
    made_by = metadata.get("model")
    if args.model is not None and made_by is not None and args.model != made_by:
        raise UsageError(f"--prompt-cache-file was made with --model {made_by}, not {args.model}")
    for layer in cache:
        if isinstance(layer, QuantizedKVCache):
            if args.kv_bits not in (None, layer.bits):
                raise UsageError(f"--kv-bits is {args.kv_bits}, but --prompt-cache-file has {layer.bits}")
            if args.kv_group_size != layer.group_size:
                raise UsageError(f"--kv-group-size is {args.kv_group_size}, not {layer.group_size} as the cache file's")
    return cache, metadata


def _prompt(
    tokenizer: Any, args: argparse.Namespace, template_options: dict[str, Any], continued: bool
) -> tuple[str, bool]:
    """Build the prompt from the options: (text, whether it went through the chat template).

    With ``continued`` the text is only what follows the saved cache, whose prompt ended where the message begins.
    """
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt.replace("\\n", "\n").replace("\\t", "\t")
    if args.ignore_chat_template or not tokenizer.has_chat_template:
        return prompt, False
    prefilled = args.prefill_response is not None

    def fill(message: str) -> str:
        messages = [{"role": "user", "content": message}]
        if args.system_prompt is not None:
            messages.insert(0, {"role": "system", "content": args.system_prompt})
        if prefilled:
            messages.append({"role": "assistant", "content": args.prefill_response})
        return tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=not prefilled,
            continue_final_message=prefilled,
            **template_options,
        )

    text = fill(prompt)
    if continued:
        mark = "<query>"
        text = text[fill(mark).index(mark) :]
    return text, True


def _with_images(
    model: Any, tokenizer: Any, config: dict[str, Any], prompt: str, templated: bool, files: list[str]
) -> tuple[list[int], Any]:
    """Put images in their places: (token ids, input embeddings [L, D]).

    Raises:
        UsageError: the model takes no images.
    """
    from .model import Model

    processor = None
    if not isinstance(model, Model):
        from mlx_lm.processors import load_processor

        processor = load_processor(model, config)
    if processor is None:
        raise UsageError("--image: this model does not take images")
    import mlx.core as mx
    import numpy as np
    from PIL import Image

    images = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    prompt, pixels = processor(prompt, images=images)
    ids = tokenizer.encode(prompt, add_special_tokens=not templated)
    embeddings = model.embed_inputs(mx.array(ids), pixel_values=pixels)
    mx.eval(embeddings)  # here, where their stream is; the prompt is processed on another
    return ids, embeddings


def _draft_model(args: argparse.Namespace, tokenizer: Any) -> Any:
    from .utils import load

    model, other = load(
        args.draft_model,
        tokenizer_config={"trust_remote_code": args.trust_remote_code},
        trust_remote_code=args.trust_remote_code,
    )
    if other.vocab_size != tokenizer.vocab_size:
        raise UsageError(
            f"--draft-model has a vocabulary of {other.vocab_size} tokens, --model of {tokenizer.vocab_size}"
        )
    return model
