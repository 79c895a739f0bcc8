"""Choosing where it can fail: errors of one request, which leave the random state and the next request alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import pytest
from axlm.sample_utils import make_logits_processors, make_sampler
from mlx_lm import sample_utils as upstream
from mlx_lm.generate import generate_step as their_step
from oracle import theirs

Tiny = Callable[[str], Path]

PROMPT = [5, 6, 7]
NO_TOKEN = "no token can be drawn, since the log probabilities have no finite maximum"


def same(tokens: mx.array, logits: mx.array) -> mx.array:
    """Leave the logits alone; it makes Python choose."""
    return logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Path:
    return tiny("qwen3-f32")


@pytest.fixture
def loaded(folder: Path) -> Iterator[tuple[Any, Any]]:
    model, tokenizer = axlm.load(folder)
    yield model, tokenizer
    model.close()


def run(model: Any, tokens: int = 3, **options: Any) -> list[int]:
    return [token for token, _ in axlm.generate_step(PROMPT, model, max_tokens=tokens, **options)]


@pytest.mark.parametrize("tokens", [1, 4])
@pytest.mark.parametrize("ngram", [False, True], ids=["plain", "speculating"])
@pytest.mark.parametrize("python", [False, True], ids=["core", "Python"])
@pytest.mark.parametrize("kind", ["banned", "infinite", "nan"])
def test_rows_without_a_finite_maximum(loaded: Any, kind: str, python: bool, ngram: bool, tokens: int) -> None:
    model = loaded[0]
    bias = {"banned": dict.fromkeys(range(1024), float("-inf")), "infinite": {5: float("inf")}, "nan": None}[kind]
    options: dict[str, Any] = {"logits_processors": [*make_logits_processors(bias), *([same] if python else [])]}
    if kind == "nan":
        options["input_embeddings"] = mx.full((3, 128), mx.nan)
        if python:
            options["sampler"] = make_sampler(0.8, top_p=0.9)
    with pytest.raises(ValueError, match=NO_TOKEN):
        run(model, tokens, ngram=ngram, **{"sampler": make_sampler(0.8), **options})
    assert run(model, ngram=ngram) == [
        int(t) for t, _ in their_step(mx.array(PROMPT), theirs(model.path)[0], max_tokens=3)
    ]


def test_such_a_row_in_a_batch(loaded: Any) -> None:
    model, tokenizer = loaded
    infinite = make_logits_processors({5: float("inf")})
    for processors in (infinite, [*infinite, same]):
        with pytest.raises(ValueError, match=NO_TOKEN):
            axlm.batch_generate(
                model, tokenizer, [[5, 6], [7]], max_tokens=4, sampler=make_sampler(0.8), logits_processors=processors
            )
    assert len(axlm.batch_generate(model, tokenizer, [[5, 6], [7]], max_tokens=4, sampler=make_sampler(0.8)).texts) == 2


def test_tiny_temperatures_in_float16(folder: Path) -> None:
    model, _ = axlm.load(folder)
    model.set_dtype(mx.float16)
    greedy = run(model)
    assert run(model, sampler=make_sampler(1e-6)) == greedy
    model.close()


@pytest.mark.parametrize("token", [1024, -1, 2**31])
def test_a_sampler_outside_the_vocabulary(loaded: Any, token: int) -> None:
    model = loaded[0]
    with pytest.raises(
        ValueError, match=rf"sampler: it returned {token}, which is no token of the vocabulary \(0 … 1023\)"
    ):
        run(model, sampler=lambda logprobs: mx.array([token], mx.int64))
    assert len(run(model)) == 3


@pytest.mark.parametrize("token", [1024, 10**8, -1])
@pytest.mark.parametrize("theirs_too", [False, True], ids=["ours", "mlx_lm's"])
@pytest.mark.parametrize("python", [False, True], ids=["core", "Python"])
def test_settings_that_name_no_token(loaded: Any, token: int, python: bool, theirs_too: bool) -> None:
    """Wherever the choice is made: MLX would write beside the array."""
    model = loaded[0]
    make = upstream if theirs_too else axlm.sample_utils
    extra = [same] if python else []
    bias = make.make_logits_processors({token: 5.0})
    with pytest.raises(ValueError, match="logit_bias"):
        run(model, logits_processors=[*bias, *extra])
    sampler = make.make_sampler(0.8, xtc_probability=1.0, xtc_threshold=0.0, xtc_special_tokens=[token])
    with pytest.raises(ValueError, match="xtc_special_tokens"):
        run(model, sampler=sampler, logits_processors=extra)
    assert len(run(model, logits_processors=extra)) == 3
    with pytest.raises(ValueError, match="xtc_special_tokens"):
        make_sampler(0.8, xtc_probability=1.0, xtc_special_tokens=[token])(mx.zeros((1, 1024)))
    with pytest.raises(ValueError, match="logit_bias"):
        make_logits_processors({token: 5.0})[0](mx.array(PROMPT), mx.zeros((1, 1024)))


def test_the_default_device_stays_the_users(folder: Path) -> None:
    """In a process of its own. That the engine never sets the device is seen by mlxc's list of what nothing calls."""
    code = """
import sys, mlx.core as mx
mx.set_default_device(mx.cpu)
stream = mx.new_stream(mx.cpu)
mx.set_default_stream(stream)
import axlm
model, tokenizer = axlm.load(sys.argv[1])
axlm.generate(model, tokenizer, [5, 6, 7], max_tokens=2)
assert mx.default_device() == mx.Device(mx.cpu, 0) and mx.default_stream(mx.cpu) == stream
"""
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
