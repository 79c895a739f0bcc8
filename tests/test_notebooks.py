"""The notebooks in examples/ from beginning to end, and what a notebook needs: interrupts, bars, pictures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager, start_new_kernel
from nbclient import NotebookClient

Tiny = Callable[[str], Path]

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NOTEBOOKS = sorted(file.name for file in EXAMPLES.glob("*.ipynb"))


@pytest.fixture(scope="module")
def kernel_settings(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Kernels know a tiny model, and nothing of the user's own settings."""
    folder = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AXLM_EXAMPLE_MODEL", str(tiny("qwen3-f32")))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
        yield


def test_three_notebooks_are_here() -> None:
    assert NOTEBOOKS == ["1-first-steps.ipynb", "2-speculation.ipynb", "3-evaluation.ipynb"]
    table = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"[{name}]({name})" in table for name in NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_committed_without_outputs(name: str) -> None:
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    nbformat.validate(notebook)
    assert notebook["cells"]
    for cell in notebook["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None, cell["id"]


@pytest.mark.usefixtures("kernel_settings")
@pytest.mark.parametrize(("name", "pictures"), [*zip(NOTEBOOKS, (0, 2, 1), strict=True)])
def test_a_notebook_runs(name: str, pictures: int) -> None:
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == pictures
    said = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr")
    # The tests choose the reference BLAS, tqdm misses widgets (in two lines), and a slow machine shows bars.
    expected = ("BLAS", "TqdmWarning", "notebook_tqdm", "Prompt:")
    assert [line for line in said.split("\n") if line.strip() and not any(word in line for word in expected)] == []


# A kernel to try things in


class Kernel:
    """A notebook's kernel: runs cells, and tells what they put out."""

    def __init__(self) -> None:
        self.manager: KernelManager
        self.manager, self.client = start_new_kernel(kernel_name="python3")

    def start(self, code: str) -> str:
        return self.client.execute(code)

    def outputs(self, number: str) -> Iterator[dict[str, Any]]:
        """The messages of a cell until it is finished."""
        while True:
            message = self.client.get_iopub_msg(timeout=60)
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return
            yield message

    def run(self, code: str) -> list[dict[str, Any]]:
        return list(self.outputs(self.start(code)))

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


LOAD = "import os, axlm; model, tokenizer = axlm.load(os.environ['AXLM_EXAMPLE_MODEL']); print('loaded')"


@pytest.fixture(scope="module")
def kernel(kernel_settings: None) -> Iterator[Kernel]:
    """A kernel with a loaded model, for all tests of this module."""
    kernel = Kernel()
    try:
        assert "loaded" in said(kernel.run(LOAD))
        yield kernel
    finally:
        kernel.close()


def said(messages: list[dict[str, Any]]) -> str:
    return "".join(message["content"]["text"] for message in messages if message["msg_type"] == "stream")


def shown(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """The value of a cell's last expression, in all its forms."""
    (result,) = [message for message in messages if message["msg_type"] == "execute_result"]
    return result["content"]["data"]


def test_a_cell_is_interrupted_and_the_next_one_works(kernel: Kernel) -> None:
    number = kernel.start("for r in axlm.stream_generate(model, tokenizer, 'x', max_tokens=-1): print('token')")
    messages = kernel.outputs(number)
    while "token" not in said([next(messages)]):
        pass
    kernel.manager.interrupt_kernel()
    started = time.monotonic()
    errors = [message["content"]["ename"] for message in messages if message["msg_type"] == "error"]
    assert errors == ["KeyboardInterrupt"]
    assert time.monotonic() - started < 5
    # The same while a prompt is processed, by a cell that generates without a loop of its own.
    number = kernel.start("axlm.generate(model, tokenizer, [1 + i % 50 for i in range(100000)], prefill_step_size=64)")
    time.sleep(0.5)
    kernel.manager.interrupt_kernel()
    errors = [message["content"]["ename"] for message in kernel.outputs(number) if message["msg_type"] == "error"]
    assert errors == ["KeyboardInterrupt"]
    assert "3\n" in said(kernel.run("print(len(list(axlm.stream_generate(model, tokenizer, 'x', max_tokens=3))))"))


def test_models_responses_and_counters_show_themselves(kernel: Kernel) -> None:
    assert shown(kernel.run("model"))["text/plain"].startswith("<axlm.Model qwen3, 1.31M parameters, float32")
    kernel.run("*_, last = axlm.stream_generate(model, tokenizer, 'x', max_tokens=5)")
    response = shown(kernel.run("last"))["text/plain"]
    assert response.startswith("GenerationResponse(text=") and "array" not in response
    assert shown(kernel.run("last.stats"))["text/plain"].startswith("5 tokens in ")
    assert "image/png" in shown(kernel.run("model.stats().plot()"))


def test_a_long_prompt_shows_a_bar(kernel: Kernel) -> None:
    messages = kernel.run(
        "import axlm._progress; axlm._progress.BAR_AFTER_SECONDS = 0\n"
        "axlm.generate(model, tokenizer, [1 + i % 50 for i in range(600)], max_tokens=1, prefill_step_size=64)"
    )
    assert "Prompt" in said(messages) or any("Prompt" in json.dumps(message["content"]) for message in messages)
