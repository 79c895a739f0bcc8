"""What runs mlx_lm's own tests (`make test-upstream`): the renaming, the reading of results, the table."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from upstream import document, outcomes, sdist
from upstream.outcomes import FAILED, PASSED, SKIPPED, Outcome


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import mlx_lm", "import axlm"),
        ("from mlx_lm import convert, utils", "from axlm import convert, utils"),
        ("    from mlx_lm.models.cache import KVCache", "    from axlm.models.cache import KVCache"),
        ("import mlx_lm.generate as gen_mod", "import axlm.generate as gen_mod"),
        ('@patch("mlx_lm.chat.load")', '@patch("axlm.chat.load")'),
        ("python -m mlx_lm.server", "python -m axlm.server"),
        ("import mlx.core as mx", "import mlx.core as mx"),
        ('"mlx-community/Qwen1.5-0.5B-Chat-4bit"', '"mlx-community/Qwen1.5-0.5B-Chat-4bit"'),
        ("vllm-mlx, mlx-lm, mlx_lm_extra, my_mlx_lm", "vllm-mlx, mlx-lm, mlx_lm_extra, my_mlx_lm"),
        ("a = mlx_lm; b = [mlx_lm.load]\n", "a = axlm; b = [axlm.load]\n"),
    ],
)
def test_renaming(source: str, expected: str) -> None:
    assert sdist.renamed(source) == expected


def archive(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


def test_unpacking_takes_the_tests_alone(tmp_path: Path) -> None:
    files = {
        "mlx_lm-1/tests/test_b.py": "from mlx_lm import b",
        "mlx_lm-1/tests/test_a.py": "from mlx_lm import a  # é",
        "mlx_lm-1/tests/helper.py": "import mlx_lm",
        "mlx_lm-1/tests/notes.txt": "",
        "mlx_lm-1/mlx_lm/tests/test_c.py": "",
        "mlx_lm-1/../tests/test_d.py": "",
        "mlx_lm-1/mlx_lm/generate.py": "",
    }
    source = archive(tmp_path / "a.tar.gz", files)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "test_old.py").write_text("")
    assert sdist.unpack(source, folder, rename=True) == ["test_a.py", "test_b.py"]
    assert sorted(path.name for path in folder.iterdir()) == ["helper.py", "test_a.py", "test_b.py"]
    assert (folder / "test_a.py").read_text(encoding="utf-8") == "from axlm import a  # é"
    sdist.unpack(source, folder, rename=False)
    assert (folder / "test_b.py").read_text() == "from mlx_lm import b"


def test_choosing_files() -> None:
    assert sdist.chosen(["test_a.py", "test_b.py"], ["test_b", "test_a.py"]) == ["test_b.py", "test_a.py"]
    with pytest.raises(sdist.FetchError, match=r"no test_c\.py; it has test_a\.py"):
        sdist.chosen(["test_a.py"], ["test_a", "test_c"])


def test_another_archive_is_refused_and_deleted(tmp_path: Path) -> None:
    (tmp_path / sdist.ARCHIVE).write_bytes(b"not the release")
    with pytest.raises(sdist.FetchError, match="SHA-256"):
        sdist.fetch(tmp_path)
    assert not (tmp_path / sdist.ARCHIVE).exists()


PYTEST_FILE = """
import unittest
import pytest

class TestThings(unittest.TestCase):
    def test_good(self):
        pass

    def test_bad(self):
        self.assertEqual(1, 2, "one is not two")

    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n):
                self.assertNotEqual(n, 1)

    @unittest.skip("no device")
    def test_skipped(self):
        pass

class TestBroken(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("no model")

    def test_any(self):
        pass
"""


def run_pytest(folder: Path, text: str) -> dict[str, Outcome]:
    """The outcomes of a test file that pytest ran as the command does."""
    from upstream import __main__ as command

    (folder / "test_it.py").write_text(text)
    return dict(command.run("test_it.py", folder, folder, None))


def test_results_are_read_as_pytest_writes_them(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, PYTEST_FILE)
    assert {name: outcome.result for name, outcome in found.items()} == {
        "TestThings.test_good": PASSED,
        "TestThings.test_bad": FAILED,
        "TestThings.test_parts": FAILED,
        "TestThings.test_skipped": SKIPPED,
        "TestBroken.test_any": FAILED,
    }
    assert "one is not two" in found["TestThings.test_bad"].reason
    assert "no model" in found["TestBroken.test_any"].reason


def test_a_file_that_cannot_be_imported(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, "import there_is_no_such_module\n")
    assert list(found) == [outcomes.WHOLE] and "there_is_no_such_module" in found[outcomes.WHOLE].reason
    lost = outcomes.Comparison("test_it.py", {"T.test_a": Outcome(PASSED)}, found).lost
    assert list(lost) == ["T.test_a"] and "there_is_no_such_module" in lost["T.test_a"].reason


def test_a_file_that_ends_the_process(tmp_path: Path) -> None:
    found = run_pytest(tmp_path, "import os\n\ndef test_end():\n    os._exit(7)\n")
    assert list(found) == [outcomes.WHOLE] and "exit code 7" in found[outcomes.WHOLE].reason


THEIRS = {"T.a": Outcome(PASSED), "T.b": Outcome(PASSED), "T.c": Outcome(FAILED, "no"), "T.d": Outcome(FAILED, "no")}
OURS = {"T.a": Outcome(PASSED), "T.b": Outcome(FAILED, "why"), "T.c": Outcome(PASSED), "T.d": Outcome(SKIPPED, "x")}


def test_comparison() -> None:
    c = outcomes.Comparison("test_x.py", THEIRS, OURS)
    assert c.lost == {"T.b": Outcome(FAILED, "why")}
    assert c.gained == ["T.c"]
    assert c.failed_by_both == {"T.d": Outcome(FAILED, "no")}
    assert not outcomes.Comparison("test_x.py", THEIRS, THEIRS).lost
    assert set(outcomes.Comparison("test_x.py", THEIRS, {}).lost) == {"T.a", "T.b"}


def test_table_and_details() -> None:
    c = outcomes.Comparison("test_x.py", THEIRS, OURS)
    lines = outcomes.table([c, outcomes.Comparison("test_y.py", {"T.a": Outcome(PASSED)}, {"T.a": Outcome(PASSED)})])
    assert lines.splitlines()[2:] == [
        "| `test_x.py` | 4 | 2 | 2 | `b` | `c` |",
        "| `test_y.py` | 1 | 1 | 1 | – | – |",
        "| all | 5 | 3 | 3 |  |  |",
    ]
    assert "under axlm only failed: why\n    T.b" in outcomes.details([c])


def test_the_document_keeps_its_other_sections(tmp_path: Path) -> None:
    path = tmp_path / "compatibility.md"
    document.put(path, "| old |\n")
    assert path.read_text().startswith("# ") and path.read_text().endswith("| old |\n")
    path.write_text(f"# Title\n\n## Before\n\nText.\n\n{document.HEADING}\n\n| old |\n\n## After\n\nMore.\n")
    document.put(path, "| new |\n")
    once = path.read_text()
    assert "| old |" not in once and once.startswith("# Title\n\n## Before\n\nText.\n\n" + document.HEADING)
    assert once.endswith("| new |\n\n## After\n\nMore.\n")
    document.put(path, "| new |\n")
    assert path.read_text() == once
