"""The command ``axlm``: finds the subcommand, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from ._version import __version__
from .cli_options import UsageError

COMMANDS = {
    "generate": ("generate_command", "generate text from a prompt"),
    "benchmark": ("benchmark", "measure speed, also against mlx_lm"),
    "manifest": ("manifest_command", "describe a model folder, or check its description"),
    "doctor": ("doctor", "check the installation"),
}
"""Name: (module, one line of help). A module has ``add_arguments(parser)`` and ``run(args) -> exit code``."""


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of ``axlm`` and of all its subcommands. Imports nothing heavy."""
    parser = argparse.ArgumentParser(prog="axlm", description="Local language models on MLX.")
    parser.add_argument("--version", action="version", version=f"axlm {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, (module_name, summary) in COMMANDS.items():
        module = importlib.import_module(f".{module_name}", __package__)
        command = commands.add_parser(name, help=summary, description=module.__doc__)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after ``axlm``; ``sys.argv``'s by default.

    Returns:
        The exit code: 0, 1 after an error, 2 after wrong usage (for most of which argparse exits by itself), 130 after
        Ctrl-C. An error is one line on stderr; with ``AXLM_DEBUG=1`` it is raised, for its traceback.
    """
    args = build_parser().parse_args(arguments)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone. Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if os.environ.get("AXLM_DEBUG", "0") not in ("", "0"):
            raise
        print(f"axlm {args.command}: {describe(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def describe(error: BaseException) -> str:
    """Say an error in one line; only an explanation with commands to type keeps its lines."""
    from .demo import DemoModelMissingError

    text = str(error).strip()
    if isinstance(error, DemoModelMissingError):
        return text
    text = " ".join(text.split())
    return text or type(error).__name__
