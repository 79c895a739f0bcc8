"""What the documents promise is said with its bounds, where a reader decides."""

from __future__ import annotations

import re
from pathlib import Path

import axlm

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_nothing_says_that_speculation_never_changes_a_token() -> None:
    """It is exact in float32, and up to near ties elsewhere."""
    files = [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*.[im]*"),
        *Path(axlm.__file__).parent.rglob("*.py"),
    ]
    assert len(files) > 60
    assert [
        file.name
        for file in files
        if re.search(r"never\s+changes?\s+a\s+token", file.read_text(encoding="utf-8"), re.I)
    ] == []


def test_the_promise_of_the_same_text_is_bounded_where_it_stands() -> None:
    for start in re.finditer(r"would have written anyway|same tokens for the same seed", README):
        assert "float32" in README[start.start() : start.end() + 60]


def test_what_is_not_there_is_said_before_the_installation() -> None:
    before, heading, _ = README.partition("\n## Install\n")
    assert heading
    missing = before.partition("**What is not there.**")[2].partition("\n\n")[0]
    assert "server" in missing
    assert not hasattr(axlm, "server")  # once there is one, the text is to be changed


def test_links_within_the_readme_lead_somewhere() -> None:
    anchors = set(re.findall(r'<a name="([^"]+)">', README))
    anchors |= {
        re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)$", README, re.M)
    }
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (
            target[1:] in anchors if target[0] == "#" else (ROOT / target).exists()
        ), target
