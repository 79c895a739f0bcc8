"""Activation-aware quantisation: mlx_lm's own, as a module and as a command."""

from .._delegate import alias, run_as

if __name__ == "__main__":
    run_as("awq")
alias(__name__)
