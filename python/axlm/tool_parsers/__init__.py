"""Parsers of models' tool calls: mlx_lm's own."""

from .._delegate import delegate

__getattr__, __dir__ = delegate(__name__)
