"""Tokenizers and chat templates of Qwen3, Qwen3.5, Gemma 3 and Gemma 4: what goes in and what comes out of axlm.

The models are tiny and random (real.tokenizer_models). So that they write a given text, a logits processor chooses
each token: it then passes through the core, end tokens and detokenizer as any other would. All with ``-m real``.
"""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm
import pytest
from axlm import NgramConfig
from axlm.sample_utils import make_logits_processors
from oracle import ours, theirs
from real.tokenizer_models import KINDS, folder, vectors

pytestmark = pytest.mark.real

CHATS = ("qwen3", "qwen3.5", "gemma3", "gemma4")
EVERY_STEP = NgramConfig(adaptive=False, max_draft_tokens=4, ema_threshold=0.0)

TEXTS = {
    "languages": "Wie geht's? Ça va bien. Привет, мир! 你好，世界。こんにちは 안녕하세요 नमस्ते สวัสดี שלום مرحبا ᏣᎳᎩ ᚠᚢᚦ",
    "emoji": "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇫🇷🇯🇵 ☎️ 🫠🪿 (๑˃ᴗ˂)ﻭ ٩(◕‿◕)۶",
    "marks": unicodedata.normalize("NFC", "z̴̛͜a̶̧̓l̷̙̈́g̵͎̀o̸͖̐ x⃗ ñ ﷺ ｆｕｌｌ ½ ₿ ﬁ"),
    "rare": "𠮷野家 𡈽 𒀀𒁀 𐀀𐀁 🜁🜂 \U000e0041 \ue000 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ꙮ ⸎",
    "spaces": "a  b   c\td\t\te\n\n\nf \n g\u00a0h\u200bi\u3000j\r\nk          l ",
    "code": "def f(x: int) -> str:\n\treturn f'{x!r:>10}'  # 1234567890\n\n\nif __name__ == __main__:\n        f(3)\n",
    "tags": '<think>\nHm.\n</think>\n\n<tool_call>\n{"name": "f"}\n</tool_call> </s> <b>bold</b> <|not_special|>',
}

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a town",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}
QUESTION = [{"role": "user", "content": "How is the weather in Zürich? ☀️"}]
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "question": {"conversation": QUESTION},
    "system": {"conversation": [{"role": "system", "content": "Be brief."}, *QUESTION]},
    "turns": {
        "conversation": [
            *QUESTION,
            {"role": "assistant", "content": "Sunny."},
            {"role": "user", "content": "  And in 東京?\n"},
        ]
    },
    "tools": {"conversation": QUESTION, "tools": [WEATHER]},
    "no thinking": {"conversation": QUESTION, "enable_thinking": False},
    "thinking": {"conversation": QUESTION, "enable_thinking": True},
    "open": {"conversation": [*QUESTION, {"role": "assistant", "content": "It is"}], "continue_final_message": True},
}


def of(name: str) -> Path:
    """A kind's folder; npm's packages need npm, which is part of Node.js and not of what axlm asks for."""
    if KINDS[name].npm and shutil.which("npm") is None:
        pytest.skip("its tokenizer comes by npm, which is not installed")
    return folder(name)


class Writing:
    """A logits processor that leaves one choice at each step: the next of the ids, from the first call on."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.ids = ids
        self.start: int | None = None

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        if self.start is None:
            self.start = tokens.size
        wanted = self.ids[min(tokens.size - self.start, len(self.ids) - 1)]
        return mx.where(mx.arange(logits.shape[-1]) == wanted, logits, -1e9)


Part = tuple[str, int, str | None]
"""A response's text, its token, and why it ended."""


def stream(module: Any, name: str, prompt: str | list[int], tokens: int, **options: Any) -> list[Part]:
    """What stream_generate of axlm or mlx_lm yields."""
    model, tokenizer = (ours if module is axlm else theirs)(of(name))
    parts = module.stream_generate(model, tokenizer, prompt, max_tokens=tokens, **options)
    return [(part.text, part.token, part.finish_reason) for part in parts]


def written(module: Any, name: str, ids: Sequence[int], **options: Any) -> list[Part]:
    """The same when the model writes these ids."""
    return stream(module, name, "Say it.", len(ids) + 8, logits_processors=[Writing(ids)], **options)


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].vectors])
def test_ids_are_llama_cpps(name: str) -> None:
    _, tokenizer = ours(of(name))
    compared = 0
    for text, ids in vectors(name):
        if text != unicodedata.normalize("NFC", text):
            continue  # these tokenizers normalise, llama.cpp does not
        assert tokenizer.encode(text, add_special_tokens=False) == ids, text
        assert tokenizer.decode(ids) == text
        compared += 1
    assert compared >= 40


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", CHATS)
def test_texts_come_out_as_they_went_in(name: str, text: str) -> None:
    """Every part is mlx_lm's, also where a character is several tokens, and nothing is lost."""
    ids = ours(of(name))[1].encode(TEXTS[text], add_special_tokens=False)
    assert ids == theirs(of(name))[1].encode(TEXTS[text], add_special_tokens=False)
    end = KINDS[name].eos[0]
    found = written(axlm, name, [*ids, end])
    assert found == written(mlx_lm, name, [*ids, end])
    assert found[-1][1:] == (end, "stop")
    assert "".join(part for part, _, _ in found) == TEXTS[text]


@pytest.mark.parametrize("name", CHATS)
def test_parts_are_the_same_when_drafted(name: str) -> None:
    """A few tokens, most of them pieces of characters, over and over: whole characters come out when they are whole."""
    model, tokenizer = ours(of(name))
    ids = tokenizer.encode("🜁", add_special_tokens=False)
    assert len(ids) > 2
    few = make_logits_processors(logit_bias=dict.fromkeys(ids, 100.0))
    expected = stream(mlx_lm, name, "Say it.", 64, logits_processors=few)
    before = model.stats()["ngram"]["accepted"]
    assert stream(axlm, name, "Say it.", 64, logits_processors=few, ngram=EVERY_STEP) == expected
    assert model.stats()["ngram"]["accepted"] > before


@pytest.mark.parametrize("name", CHATS)
def test_every_end_token_ends(name: str) -> None:
    ids = ours(of(name))[1].encode("Done", add_special_tokens=False)
    for end in KINDS[name].eos:
        found = written(axlm, name, [*ids, end, *ids])
        assert found[-1][1:] == (end, "stop") and "".join(part for part, _, _ in found) == "Done"
        assert found == written(mlx_lm, name, [*ids, end, *ids])


MARKS = {"qwen3": "<|im_start|>", "qwen3.5": "<|im_start|>", "gemma3": "<start_of_turn>", "gemma4": "<|turn>"}


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("name", CHATS)
def test_templates(name: str, conversation: str) -> None:
    """The prompt is mlx_lm's, its marks are single tokens, and the answer to it is mlx_lm's, token by token."""
    options = {"add_generation_prompt": "continue_final_message" not in CONVERSATIONS[conversation]}
    options |= CONVERSATIONS[conversation]
    tokenizer = ours(of(name))[1]
    prompt = tokenizer.apply_chat_template(**options)
    assert prompt == theirs(of(name))[1].apply_chat_template(**options)
    text = tokenizer.decode(prompt)
    assert prompt.count(tokenizer.convert_tokens_to_ids(MARKS[name])) == text.count(MARKS[name]) > 0
    assert "How is the weather in Zürich? ☀️" in text
    assert stream(axlm, name, prompt, 24) == stream(mlx_lm, name, prompt, 24)


@pytest.mark.parametrize("name", CHATS)
def test_what_templates_tell_is_known(name: str) -> None:
    """Whether the model thinks and how it calls tools, inferred by mlx_lm from the template."""
    found, expected = ours(of(name))[1], theirs(of(name))[1]
    for key in ("has_thinking", "think_start", "think_end", "has_tool_calling", "tool_call_start", "tool_call_end"):
        assert getattr(found, key) == getattr(expected, key), key
    assert found.eos_token_ids == expected.eos_token_ids >= set(KINDS[name].eos)
    assert type(found.detokenizer) is type(expected.detokenizer)
    calls = {"qwen3": "<tool_call>", "qwen3.5": "<tool_call>", "gemma3": None, "gemma4": "<|tool_call>"}
    assert found.tool_call_start == calls[name]
