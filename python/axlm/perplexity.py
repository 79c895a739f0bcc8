"""Measure a model's perplexity on a data set."""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._delegate import delegate, run_as
from .cli_options import UsageError
from .utils import load

if TYPE_CHECKING:
    import mlx.core as mx

__getattr__, __dir__ = delegate(__name__, "perplexity")

_NO_DATASETS = "data sets need one more package: pip install datasets"


def load_data(tokenizer: Any, data_path: str, num_samples: int, sequence_length: int) -> mx.array:
    """Draw texts of a data set, in the order of numpy's random state, and cut their tokens into rows.

    Args:
        tokenizer: the model's.
        data_path: a data set's name on the hub, or a local folder.
        num_samples: how many rows; -1 for all there are.
        sequence_length: tokens a row, L.

    Returns:
        Token ids [num_samples, L].

    Raises:
        ImportError: the package ``datasets`` is not installed.
    """
    from mlx_lm.perplexity import load_data

    try:
        return load_data(tokenizer, data_path, num_samples, sequence_length)
    except ModuleNotFoundError as error:
        if error.name != "datasets":
            raise
        raise ImportError(_NO_DATASETS) from None


def eval_ppl(model: Any, data: mx.array, batch_size: int = 8) -> tuple[float, float]:
    """Compute the perplexity of rows of tokens, each token but a row's first predicted from those before it.

    Args:
        model: a model from :func:`axlm.load`, or any callable from ids [B, L] to logits [B, L, V].
        data: token ids [N, L].
        batch_size: rows per forward pass.

    Returns:
        (perplexity, standard error).
    """
    from mlx_lm.perplexity import eval_ppl

    return eval_ppl(model, data, batch_size)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of mlx_lm.perplexity."""
    add = parser.add_argument
    add("--model", required=True, help="a model folder or Hugging Face repository")
    add("--trust-remote-code", action="store_true", help="run Python code that comes with the tokenizer or model")
    add("--batch-size", type=int, default=8, help="rows per forward pass (default: 8)")
    add("--sequence-length", type=int, default=512, help="tokens per row (default: 512)")
    add("--num-samples", type=int, default=256, help="rows, -1: all there are (default: 256)")
    add(
        "--data-path",
        default="allenai/tulu-3-sft-mixture",
        metavar="DATASET",
        help="a data set of the hub, in a format that mlx_lm.lora takes (default: allenai/tulu-3-sft-mixture)",
    )
    add("--seed", type=int, default=123, help="seed of the choice of texts (default: 123)")


def run(args: argparse.Namespace) -> int:
    """Measure and print; return the exit code."""
    if args.batch_size < 1:
        raise UsageError("--batch-size must be at least 1")
    if args.sequence_length < 2:
        raise UsageError("--sequence-length must be at least 2")
    if not args.seed < 2**32:
        raise UsageError(f"--seed must be less than 2³², not {args.seed}")
    if importlib.util.find_spec("datasets") is None and not Path(args.data_path).exists():
        raise ImportError(_NO_DATASETS)
    from . import _bridge

    model, tokenizer = load(
        args.model,
        tokenizer_config={"trust_remote_code": args.trust_remote_code},
        trust_remote_code=args.trust_remote_code,
    )
    import mlx.core as mx
    import numpy as np

    np.random.seed(args.seed)
    mx.random.seed(args.seed)
    from .utils import get_total_parameters  # mlx_lm's: not before it is needed

    print(f"Model: {args.model}, {get_total_parameters(model) / 1e6:.1f}M parameters")
    data = load_data(tokenizer, args.data_path, args.num_samples, args.sequence_length)
    if not len(data):
        raise ValueError(f"{args.data_path} has less than {args.sequence_length} tokens: there is no row to measure")
    print(f"Data: {len(data)} rows of {args.sequence_length} tokens from {args.data_path}")
    started = time.perf_counter()
    perplexity, error = eval_ppl(model, data, args.batch_size)
    seconds = time.perf_counter() - started
    print(f"Perplexity: {perplexity:.3f} ± {error:.3f}")
    print(f"Evaluation time: {seconds:.2f} seconds")
    print(f"Peak memory: {_bridge.peak_memory() / 1e9:.2f} GB")
    print(f"Tokens per second: {data.shape[0] * (data.shape[1] - 1) / seconds:.0f}")
    return 0


if __name__ == "__main__":
    run_as("perplexity")
