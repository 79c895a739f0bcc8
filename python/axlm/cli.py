"""The command ``axlm``: finds the subcommand, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import _cli_checks
from ._version import __version__
from .cli_options import UsageError

COMMANDS = {
    "generate": ("generate_command", "generate text from a prompt"),
    "chat": ("chat", "chat with a model"),
    "cache_prompt": ("cache_prompt", "save a prompt's state for generate --prompt-cache-file"),
    "benchmark": ("benchmark", "measure speed, also against mlx_lm"),
    "perplexity": ("perplexity", "measure a model's perplexity"),
    "evaluate": ("evaluate", "evaluate on tasks of lm-evaluation-harness"),
    "manifest": ("manifest_command", "describe a model folder, or check its description"),
    "doctor": ("doctor", "check the installation"),
}
"""Name: (module, one line of help). A module has ``add_arguments(parser)`` and ``run(args) -> exit code``."""

THEIRS = {
    "convert": ("convert", "convert a checkpoint to MLX's format"),
    "lora": ("lora", "train adapters"),
    "fuse": ("fuse", "fuse adapters into weights"),
    "awq": ("quant.awq", "quantise with AWQ"),
    "dwq": ("quant.dwq", "quantise with distillation"),
    "dynamic_quant": ("quant.dynamic_quant", "quantise by the layers' sensitivity"),
    "gptq": ("quant.gptq", "quantise with GPTQ"),
    "upload": ("upload", "upload a model to the hub"),
    "share": ("share", "copy a model to other machines"),
    "manage": ("manage", "list and delete what the hub's cache has"),
}
"""The same for commands that are mlx_lm's own: the modules are mlx_lm's, and have ``main()``."""


def build_parser() -> argparse.ArgumentParser:
    """Make the parser of ``axlm`` itself, which knows the names of its subcommands only. Imports nothing heavy."""
    parser = argparse.ArgumentParser(prog="axlm", description="Local language models on MLX.")
    parser.add_argument("--version", action="version", version=f"axlm {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    for name, (_, summary) in COMMANDS.items():
        commands.add_parser(name, help=summary)
    for name, (_, summary) in THEIRS.items():
        commands.add_parser(name, help=f"{summary} (mlx_lm's)")
    return parser


def command_parser(command: str) -> argparse.ArgumentParser:
    """Make the parser of a subcommand of ours. Imports nothing heavy."""
    module = importlib.import_module(f".{COMMANDS[command][0]}", __package__)
    parser = argparse.ArgumentParser(prog=f"axlm {command}", description=module.__doc__)
    module.add_arguments(parser)
    parser.set_defaults(run=module.run)
    return parser


def run_command(command: str) -> None:
    """Run a subcommand with this process's arguments.

    Raises:
        SystemExit: it failed.
    """
    if code := main([command, *sys.argv[1:]]):
        sys.exit(code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: the words after ``axlm``; ``sys.argv``'s by default.

    Returns:
        The exit code: 0, 1 after an error, 2 after wrong usage (for most of which argparse exits by itself), 130 after
        Ctrl-C. An error is one line on stderr; with ``AXLM_DEBUG=1`` it is raised, for its traceback.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = words[0] if words else None
    if command in THEIRS:
        return _guarded(command, lambda: _run_theirs(command, words[1:]))
    if command not in COMMANDS:
        parser = build_parser()
        parser.parse_args(words)  # ends here for --version, --help and wrong usage
        parser.error("the command comes first")
    args = command_parser(command).parse_args(words[1:])

    def run() -> int:
        _cli_checks.check(args)
        if (limit := getattr(args, "kv_bytes", None)) is not None:
            from .memory import set_kv_bytes

            set_kv_bytes(limit)
        return args.run(args)

    return _guarded(command, run)


def _run_theirs(command: str, words: list[str]) -> int:
    """Run a command of mlx_lm's, which reads sys.argv and calls itself by its first word."""
    from . import _bridge

    _bridge.choose_blas()
    theirs = importlib.import_module(f"mlx_lm.{THEIRS[command][0]}")
    before = sys.argv
    sys.argv = [f"axlm {command}", *words]
    try:
        theirs.main()
    finally:
        sys.argv = before
    return 0


def _guarded(command: str, run: Callable[[], int]) -> int:
    """Run a command, putting errors and warnings into one line each."""
    try:
        with _short_warnings(command):
            return run()
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
        print(f"axlm {command}: {describe(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


@contextmanager
def _short_warnings(command: str) -> Iterator[None]:
    """Show a UserWarning without the file and line that it comes from: they say nothing to who typed a command."""
    show = warnings.showwarning

    def shorter(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
        if category is UserWarning:
            print(f"axlm {command}: {message}", file=sys.stderr)
        else:
            show(message, category, *where, **options)

    warnings.showwarning = shorter
    try:
        yield
    finally:
        warnings.showwarning = show


def describe(error: BaseException) -> str:
    """Say an error in one line; only an explanation with commands to type keeps its lines."""
    from .demo import DemoModelMissingError

    text = str(error).strip()
    if isinstance(error, DemoModelMissingError):
        return text
    text = " ".join(text.split())
    return text or type(error).__name__
