"""Model families in Python, and what they are made of: mlx_lm's own, except for the modules that have a file here."""

from .._delegate import delegate

__getattr__, __dir__ = delegate(__name__)
