"""The core's counters as an object, and what a response looks like."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import axlm
import pytest
from axlm._stats import Stats
from axlm.generate import GenerationResponse
from axlm.sample_utils import make_logits_processors
from oracle import ours

Tiny = Callable[[str], Path]

PNG = b"\x89PNG"


def test_stats_are_a_dictionary(tiny: Tiny) -> None:
    model, tokenizer = ours(tiny("qwen3-f32"))
    stream = axlm.stream_generate(model, tokenizer, [5, 6, 7, 8] * 20, max_tokens=40)
    last = list(stream)[-1]
    for stats in (model.stats(), last.stats):
        assert isinstance(stats, Stats) and stats["generated_tokens"] >= 40
        assert json.loads(json.dumps(stats)) == stats == dict(stats)
        assert repr(stats) == repr(dict(stats))


def test_stats_sum_themselves_up() -> None:
    reasons = {"no_match": 3, "not_worth": 12}
    stats = Stats(
        prompt_tokens=60,
        prefill_steps=2,
        generated_tokens=40,
        decode_steps=16,
        cache_bytes=2_500_000,
        speculation={"drafted": 48, "accepted": 24, "no_draft": reasons},
    )
    assert str(stats).splitlines() == [
        "40 tokens in 16 steps; 48 drafted, 24 accepted (50%)",
        "prompts: 60 tokens in 2 steps",
        "caches: 2.5 MB",
        "steps without drafts: not_worth 12, no_match 3",
    ]
    assert str(Stats(generated_tokens=4, decode_steps=4)) == "4 tokens in 4 steps, none drafted"


def test_stats_draw_themselves(tiny: Tiny, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    model, tokenizer = axlm.load(tiny("qwen3-nano-f32"))
    nothing = model.stats().plot()
    # A bias so strong that the text must loop: there are drafts, and they are right.
    forced = make_logits_processors(logit_bias={7: 1e4})
    axlm.generate(model, tokenizer, [7] * 8, max_tokens=60, logits_processors=forced)
    stats = model.stats()
    figure = stats.plot()
    depths, places, cost = figure.axes
    steps = sum(bar.get_height() for bar in depths.containers[0]) + sum(
        bar.get_height() for bar in depths.containers[1]
    )
    assert steps == stats["ngram"]["steps"]
    assert sum(bar.get_height() for bar in places.containers[1]) == stats["ngram"]["accepted"] > 0
    assert list(cost.lines[0].get_xdata()) == [point["width"] for point in stats["ngram"]["cost"]["widths"]]
    assert str(stats["ngram"]["accepted"]) in figure.get_suptitle()
    # A notebook asks for a picture, whatever backend it has; nothing was drawn before anything was generated.
    assert figure._repr_png_().startswith(PNG) and nothing._repr_png_().startswith(PNG)
    figure.savefig(tmp_path / "stats.png")
    assert (tmp_path / "stats.png").read_bytes().startswith(PNG)


def test_a_request_that_decoded_plainly_can_be_drawn(tiny: Tiny) -> None:
    pytest.importorskip("matplotlib")
    model, tokenizer = ours(tiny("qwen3-f32"))
    last = list(axlm.stream_generate(model, tokenizer, [5, 6], max_tokens=3, ngram=False))[-1]
    assert last.stats is not None and "none drafted" in str(last.stats)
    assert last.stats.plot()._repr_png_().startswith(PNG)


def test_drawing_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axlm._plot.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install \"matplotlib>=3\.8\""):
        Stats().plot()


def test_a_response_shows_what_a_person_reads() -> None:
    response = GenerationResponse(" sea", 7, None, True, 3, 1234.56789, 2, 45.6789, 1.2345678, "stop", Stats())
    assert repr(response) == (
        "GenerationResponse(text=' sea', token=7, from_draft=True, prompt_tokens=3, prompt_tps=1234.6, "
        "generation_tokens=2, generation_tps=45.7, peak_memory=1.235, finish_reason='stop')"
    )
