"""What type checkers make of axlm: mypy takes the README's examples and every module, and stubs stand beside what is
bound when the program runs. ``python test_typing.py`` writes the stubs anew."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import axlm
import mlx_lm
import pytest

PACKAGE = Path(axlm.__file__).parent
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("chat_templates", "kernels", "models", "processors", "quant", "tool_parsers", "tuner")
"""Packages whose modules are mlx_lm's own, where no file of ours is there."""

needs_this_version = pytest.mark.skipif(
    not mlx_lm.__version__.startswith("0.32."), reason="the stubs are of mlx_lm 0.32; Python 3.10 has an older one"
)


def borrowed() -> Iterator[str]:
    """The modules of axlm that are mlx_lm's: those that say so, and those that have no file here."""
    for file in PACKAGE.rglob("*.py"):
        if re.search(r"^alias\(__name__\)", file.read_text(encoding="utf-8"), re.M):
            yield ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
    for package in PACKAGES:
        for module in pkgutil.iter_modules([str(Path(mlx_lm.__path__[0]) / package)]):
            if not (PACKAGE / package / f"{module.name}.py").exists() and module.name.isidentifier():
                yield f"{package}.{module.name}"


def stub(name: str) -> str:
    """The text of a borrowed module's stub."""
    return (
        f"from typing import Any\n\nfrom mlx_lm.{name} import *\n\n"
        "def __getattr__(name: str) -> Any: ...  # what the line above leaves out\n"
    )


def path(name: str) -> Path:
    return PACKAGE.joinpath(*name.split(".")).with_suffix(".pyi")


@needs_this_version
def test_stubs_are_those_of_what_is_mlx_lm_s() -> None:
    names = set(borrowed())
    assert {"lora", "tokenizer_utils", "models.llama", "tuner.utils", "quant.awq"} <= names
    found = {file.relative_to(PACKAGE).as_posix(): file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.pyi")}
    wanted = {path(name).relative_to(PACKAGE).as_posix(): stub(name) for name in names}
    assert found == wanted, "run `python tests/test_typing.py`"


PROGRAM = """
from __future__ import annotations
import mlx.core as mx
import mlx.nn as nn
from typing import Any
from typing_extensions import assert_type
{imports}

import axlm
from axlm import Model, batch_generate, generate, generate_step, load
from axlm.generate import BatchGenerator, BatchStats, StopSequences, speculative_generate_step, wired_limit
from axlm.lora import CONFIG_DEFAULTS, train_model
from axlm.models import cache, llama, qwen3
from axlm.models.cache import KVCache, load_prompt_cache, make_prompt_cache, save_prompt_cache
from axlm.models.llama import ModelArgs
from axlm.quant.awq import awq_quantize
from axlm.sample_utils import apply_top_p, make_logits_processors, make_sampler
from axlm.tokenizer_utils import TokenizerWrapper
from axlm.tuner.utils import linear_to_lora_layers
from axlm.utils import load_adapters, load_config, load_model

model, tokenizer = load("path", fallback=False)
assert_type(model, Model)
assert_type(tokenizer, TokenizerWrapper)
three, _, config = load("path", return_config=True)
assert_type(config, dict[str, Any])
module: nn.Module = model
logits: mx.array = model(inputs=mx.array([[1]]), cache=make_prompt_cache(model))
logits = model(mx.array([[1]]), None, mx.zeros((1, 1, 8)))
layers = len(model.layers)
size: int = model.nbytes
text: str = generate(three, tokenizer, "prompt", max_tokens=3, sampler=make_sampler(temp=0.5))
text = generate(module, tokenizer, [1, 2])
for token, logprobs in generate_step([1, 2], load_model("path")[0]):
    assert_type(token, int)
batch_generate(model, tokenizer, [[1]]).texts
axlm.models.cache.trim_prompt_cache([KVCache()], 1)
axlm.utils.get_total_parameters(model)
with wired_limit(model):
    cache.can_trim_prompt_cache(load_prompt_cache("file"))
"""

WRONG = """
from axlm import NgramConfig, generate, load

model, tokenizer = load("path", fallback=False)
model, tokenizer, config = load("path")
number: int = generate(model, tokenizer, "prompt")
NgramConfig(max_drafts=3)
"""

SETTINGS = """
[mypy]
cache_dir = {cache}
# What axlm takes types from lies behind these, and takes mypy many times as long as axlm itself.
[mypy-transformers.*,huggingface_hub.*,numpy.*,datasets.*,jinja2.*,torch.*]
follow_imports = skip
follow_imports_for_stubs = True
"""


def mypy(folder: Path, **programs: str) -> str:
    """What mypy says about programs, one process for all of them; nothing where it accepts them."""
    settings = folder / "mypy.ini"
    settings.write_text(SETTINGS.format(cache=ROOT / ".cache" / "mypy"))
    files = []
    for name, text in programs.items():
        files.append(folder / f"{name}.py")
        files[-1].write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", settings, "--no-error-summary", "--no-pretty", *files]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_mypy_accepts_what_users_write(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) >= 2
    modules = [module.name for module in pkgutil.walk_packages(axlm.__path__, "axlm.")]
    public = [name for name in modules if not any(part.startswith("_") for part in name.split("."))]
    imports = "\n".join(f"import {name}" for name in [*public, *(f"axlm.{name}" for name in PACKAGES)])
    programs = {f"readme_{number}": text for number, text in enumerate(examples)}
    said = mypy(tmp_path, program=PROGRAM.format(imports=imports), wrong=WRONG, **programs)
    lines = [line for line in said.splitlines() if ": note:" not in line]
    assert "\n".join(line for line in lines if "wrong.py:" not in line) == ""
    assert [int(line.split(":")[1]) for line in lines] == [5, 6, 7], "what is wrong is told"


def test_modules_can_be_imported_as_their_stubs_say() -> None:
    for name in ("axlm.tuner.utils", "axlm.models.llama", "axlm.kernels", "axlm.lora"):
        assert importlib.import_module(name)


if __name__ == "__main__":
    for old in PACKAGE.rglob("*.pyi"):
        old.unlink()
    for name in borrowed():
        path(name).write_text(stub(name), encoding="utf-8")
