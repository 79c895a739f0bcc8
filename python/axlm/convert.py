"""Conversion of checkpoints to MLX's format: mlx_lm's own, as a module and as a command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._delegate import delegate, run_as

if TYPE_CHECKING:
    import mlx.nn as nn

__getattr__, __dir__ = delegate(__name__)


# A function here, not delegated like the others: ``axlm.convert`` must be this function and not the module, whichever
# of them is imported first.
def convert(
    hf_path: str,
    mlx_path: str = "mlx_model",
    quantize: bool = False,
    q_group_size: int | None = None,
    q_bits: int | None = None,
    q_mode: str = "affine",
    dtype: str | None = None,
    upload_repo: str | None = None,
    revision: str | None = None,
    dequantize: bool = False,
    quant_predicate: Callable[[str, nn.Module, dict[str, Any]], bool | dict[str, Any]] | str | None = None,
    trust_remote_code: bool = False,
) -> None:
    """Convert a checkpoint of the Hugging Face hub, or a folder, to a folder in MLX's format, with mlx_lm.

    Args:
        hf_path: the repository or folder to convert.
        mlx_path: the folder to write; it must not exist yet.
        quantize: pack the weights into few bits.
        q_group_size: how many weights share a scale; the mode's default without it.
        q_bits: bits per weight; the mode's default without it.
        q_mode: ``"affine"``, ``"mxfp4"``, ``"nvfp4"`` or ``"mxfp8"``.
        dtype: the dtype of weights that are not packed, by default the checkpoint's.
        upload_repo: a repository on the hub to upload the result to.
        revision: a branch, tag or commit of the repository.
        dequantize: unpack packed weights.
        quant_predicate: how each layer is packed: a recipe's name, or a callable of (path, layer).
        trust_remote_code: run Python code that comes with the model or its tokenizer.

    Raises:
        ValueError: the folder exists, or arguments contradict each other.
    """
    from mlx_lm.convert import convert

    convert(
        hf_path,
        mlx_path,
        quantize,
        q_group_size,
        q_bits,
        q_mode,
        dtype,
        upload_repo,
        revision,
        dequantize,
        quant_predicate,
        trust_remote_code,
    )


if __name__ == "__main__":
    run_as("convert")
