"""Run mlx_lm's own tests on mlx_lm and on axlm and print the counts. Exit code 1: axlm fails what mlx_lm passes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from . import document, outcomes, sdist, stand_ins

FILES = (
    "test_generate",
    "test_prompt_cache",
    "test_sample_utils",
    "test_tool_parsing",
    "test_chat",
    "test_utils",
    "test_tokenizers",
)
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "upstream"
TIMEOUT = 1200
"""Seconds that one file may take."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m upstream", description=__doc__)
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"test files (default: {' '.join(FILES)})")
    parser.add_argument("--cache", type=Path, default=CACHE, help="the folder for what is fetched and made")
    parser.add_argument("--document", type=Path, metavar="MD", help="put the table into this document")
    parser.add_argument("-k", metavar="EXPRESSION", help="only the tests that pytest's -k chooses")
    arguments = parser.parse_args()
    try:
        comparisons = compare(arguments.files or FILES, arguments.cache, arguments.k)
    except sdist.FetchError as error:
        print(error, file=sys.stderr)
        return 2
    table = outcomes.table(comparisons)
    print(outcomes.details(comparisons))
    print(table)
    if arguments.document:
        document.put(arguments.document, table)
    return 1 if any(c.lost for c in comparisons) else 0


def compare(wanted: list[str] | tuple[str, ...], cache: Path, expression: str | None) -> list[outcomes.Comparison]:
    """Run test files under both packages.

    Raises:
        FetchError: mlx_lm's source distribution cannot be had, or lacks a file.
    """
    sdist.check_installed()
    archive = sdist.fetch(cache)
    folders = {package: cache / f"tests-{package}" for package in ("mlx_lm", "axlm")}
    for package, folder in folders.items():
        names = sdist.unpack(archive, folder, rename=package == "axlm")
    files = sdist.chosen(names, wanted)
    stand_ins.hub(cache / "hf")
    comparisons = []
    for file in files:
        results = {package: run(file, folder, cache, expression) for package, folder in folders.items()}
        comparison = outcomes.Comparison(file, results["mlx_lm"], results["axlm"])
        comparisons.append(comparison)
        print(f"{file}: {comparison.tests} tests, {len(comparison.lost)} that only mlx_lm passes", flush=True)
    return comparisons


def run(file: str, folder: Path, cache: Path, expression: str | None) -> outcomes.Results:
    """Run one file in a process of its own, from a folder where only the installed packages can be imported."""
    junit = folder / f"{file}.xml"
    junit.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "HF_HOME": str(cache / "hf"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # The same BLAS under both packages: axlm would choose a faster one.
        "AXLM_BLAS": "reference",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "-c", os.devnull]
    options = [f"--junitxml={junit.name}", *(["-k", expression] if expression else []), file]
    log = folder / f"{file}.log"
    with log.open("w") as output:
        try:
            process = subprocess.run(
                [*command, *options], cwd=folder, env=environment, stdout=output, stderr=output, timeout=TIMEOUT
            )
            end = f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            end = f"took more than {TIMEOUT} s"
    if not junit.is_file():  # the process died
        return {outcomes.WHOLE: outcomes.Outcome(outcomes.FAILED, f"{end}, see {log}")}
    return outcomes.read(junit)


if __name__ == "__main__":
    sys.exit(main())
