"""What the tests of both packages came to, read from JUnit files, and the table of it."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
_ORDER = (PASSED, SKIPPED, FAILED)  # the worst of a test's parts is the test's


@dataclass(frozen=True)
class Outcome:
    """A test's result, and for one that did not pass the first line of why."""

    result: str
    reason: str = ""


Results = Mapping[str, Outcome]
"""Outcomes by test, ``Class.test``, and under WHOLE why a file could not be run."""

WHOLE = ""
_NAMED = 6  # from so many names on, a cell of the table has their number


def read(junit: Path) -> dict[str, Outcome]:
    """Read the JUnit file of one test file."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.parse(junit).iter("testcase"):
        suite = case.get("classname", "").rpartition(".")[2]
        name = f"{suite}.{case.get('name', '')}" if suite else WHOLE  # an error of collecting has no class
        outcome = _outcome(case)
        # A test with subtests has an entry for each that failed.
        if name not in outcomes or _ORDER.index(outcome.result) > _ORDER.index(outcomes[name].result):
            outcomes[name] = outcome
    return outcomes


def _outcome(case: ElementTree.Element) -> Outcome:
    for part in case:
        if part.tag in ("failure", "error", "skipped"):
            # What went wrong stands first in a test's message, and last in the traceback of a file's import.
            message = part.get("message") or ""
            lines = [line for line in (part.text or message).splitlines() if line.strip()] or [""]
            reason = lines[-1] if message == "collection failure" else (message or lines[0]).splitlines()[0]
            return Outcome(SKIPPED if part.tag == "skipped" else FAILED, reason.removeprefix("E ").strip())
    return Outcome(PASSED)


@dataclass(frozen=True)
class Comparison:
    """One test file under both packages.

    Attributes:
        file: its name.
        theirs: the outcomes under mlx_lm.
        ours: the outcomes under axlm.
    """

    file: str
    theirs: Results
    ours: Results

    @property
    def lost(self) -> dict[str, Outcome]:
        """Tests that pass under mlx_lm and not under axlm, with their outcome there."""
        missing = self.ours.get(WHOLE, Outcome(FAILED, "was not run"))
        return {
            name: self.ours.get(name, missing)
            for name, outcome in self.theirs.items()
            if outcome.result == PASSED and self.ours.get(name, missing).result != PASSED
        }

    @property
    def gained(self) -> list[str]:
        """Tests that pass under axlm alone."""
        return [
            name
            for name, outcome in self.ours.items()
            if outcome.result == PASSED and self.theirs.get(name, Outcome(FAILED)).result != PASSED
        ]

    @property
    def failed_by_both(self) -> dict[str, Outcome]:
        """Tests that pass under neither, with their outcome under mlx_lm."""
        return {
            name: outcome
            for name, outcome in self.theirs.items()
            if outcome.result != PASSED and name not in self.gained
        }

    @property
    def tests(self) -> int:
        """How many tests there are."""
        return len({*self.theirs, *self.ours} - {WHOLE})


def _passed(results: Results) -> int:
    return sum(outcome.result == PASSED for outcome in results.values())


def table(comparisons: list[Comparison]) -> str:
    """The counts by file as Markdown."""
    rows = [("File", "Tests", "mlx_lm passes", "axlm passes", "Only mlx_lm passes", "Only axlm passes")]
    rows.append(("---", *["---:"] * 3, "---", "---"))
    total = [0, 0, 0]
    for c in comparisons:
        counts = (c.tests, _passed(c.theirs), _passed(c.ours))
        total = [a + b for a, b in zip(total, counts, strict=True)]
        rows.append((f"`{c.file}`", *map(str, counts), _names(list(c.lost)), _names(c.gained)))
    rows.append(("all", *map(str, total), "", ""))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _names(tests: list[str]) -> str:
    if len(tests) > _NAMED:
        return f"{len(tests)} tests"
    return ", ".join(f"`{name.rpartition('.')[2]}`" for name in tests) or "–"


def details(comparisons: list[Comparison]) -> str:
    """Why tests fail, those that fail for the same reason together."""
    lines = []
    for c in comparisons:
        lines += _grouped(f"{c.file}, under axlm only", c.lost)
        lines += _grouped(f"{c.file}, under both", c.failed_by_both)
    return "".join(line + "\n" for line in lines)


def _grouped(where: str, outcomes: Results) -> list[str]:
    groups: dict[Outcome, list[str]] = {}
    for name, outcome in outcomes.items():
        groups.setdefault(outcome, []).append(name or "the whole file")
    return [f"{where} {outcome.result}: {outcome.reason}\n    {', '.join(names)}" for outcome, names in groups.items()]
