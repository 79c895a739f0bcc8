"""What the terminal shows: mlx_lm's own."""

from ._delegate import alias

alias(__name__)
