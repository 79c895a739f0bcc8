"""A wrong argument's error speaks of the function that was called (case: ``generate(temp=…)``)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import pytest
from axlm.generate import speculative_generate_step
from oracle import ours, theirs

Tiny = Callable[[str], Path]

CALLS: dict[str, Callable[..., Any]] = {
    "generate": lambda model, tokenizer, **options: axlm.generate(model, tokenizer, [1, 2], max_tokens=1, **options),
    "stream_generate": lambda model, tokenizer, **options: list(
        axlm.stream_generate(model, tokenizer, [1, 2], max_tokens=1, **options)
    ),
    "generate_step": lambda model, tokenizer, **options: list(axlm.generate_step([1, 2], model, **options)),
    "speculative_generate_step": lambda model, tokenizer, **options: list(
        speculative_generate_step([1, 2], model, model, **options)
    ),
    "batch_generate": lambda model, tokenizer, **options: axlm.batch_generate(model, tokenizer, [[1, 2]], **options),
}


@pytest.mark.parametrize("loaded", [ours, theirs], ids=["core", "mlx_lm"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("argument", ["temp", "logprobs", "end_tokens", "nothing", "draft_models"])
def test_the_error_names_the_function(tiny: Tiny, name: str, argument: str, loaded: Any) -> None:
    model, tokenizer = loaded(tiny("qwen3-f32"))
    wanted = re.escape(f"{name}() got an unexpected keyword argument '{argument}'")
    with pytest.raises(TypeError, match=f"^{wanted}") as caught:
        CALLS[name](model, tokenizer, **{argument: 0.5})
    assert ("make_sampler" in str(caught.value)) == (argument == "temp" and name in ("generate", "stream_generate"))


def test_right_names_are_taken(tiny: Tiny) -> None:
    model, tokenizer = ours(tiny("qwen3-f32"))
    options = {"prefill_step_size": 7, "stream": None, "num_draft_tokens": 2, "ngram": False, "draft_model": None}
    assert CALLS["generate"](model, tokenizer, **options) == CALLS["generate"](model, tokenizer)
    assert len(CALLS["stream_generate"](model, tokenizer, **options)) == 1
