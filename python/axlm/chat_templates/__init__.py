"""Chat templates that Jinja cannot express: mlx_lm's own."""

from .._delegate import delegate

__getattr__, __dir__ = delegate(__name__)
