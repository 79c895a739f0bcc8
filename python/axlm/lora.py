"""Training adapters: mlx_lm's own, as a module and as a command."""

from ._delegate import alias, run_as

if __name__ == "__main__":
    run_as("lora")
alias(__name__)
