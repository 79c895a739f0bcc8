"""What ``make test-real`` downloads is what the README's table lists, with a licence that the packages state."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def table() -> list[list[str]]:
    """The rows of the README's table of downloads."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("| Content | From | Size | Licence |\n")
    rows = rest.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def downloaded() -> set[str]:
    """The packages that the requirements list, without the numbers of their parts."""
    names = set()
    for file in (ROOT / "tests" / "real" / "requirements").glob("*.txt"):
        names |= {line.partition("==")[0] for line in file.read_text().splitlines() if "==" in line}
    return {re.sub(r"-part\d+$", "", name) for name in names}


def test_each_download_has_a_licence() -> None:
    assert len(table()) >= 4
    for _, origin, _, licence in table():
        assert licence in {"Apache-2.0", "MIT", "Gemma Terms of Use"}, origin


def test_the_table_has_every_package() -> None:
    listed = {re.sub(r"-part\d+$", "", name) for row in table() for name in re.findall(r"`([^`]+)`", row[1])}
    assert downloaded() and downloaded() <= listed
