"""The section of a Markdown document that has the table."""

from __future__ import annotations

from pathlib import Path

from . import sdist

HEADING = "## mlx_lm's own tests"
_TEXT = f"""{HEADING}

`make test-upstream` fetches the tests of mlx_lm {sdist.VERSION} from its source distribution, changes the name
`mlx_lm` to `axlm` in them, and runs them under both packages, on a local hub cache of tiny models that stand in for the
repositories which the tests name. It fails if a test passes under mlx_lm and not under axlm.

"""


def put(path: Path, table: str) -> None:
    """Write the section with a table into a document: in place of the section that it has, or at its end."""
    text = path.read_text(encoding="utf-8") if path.is_file() else "# Compatibility with mlx_lm\n"
    before, found, rest = text.partition(HEADING + "\n")
    _, following, after = rest.partition("\n## ")
    if not found:
        before = before.rstrip("\n") + "\n\n"
    path.write_text(before + _TEXT + table + following + after, encoding="utf-8")
