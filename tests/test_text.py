"""From tokens to text and back: where a text ends, characters of several tokens, prompts that begin once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm
import pytest
from axlm.generate import generate_step, stream_generate
from axlm.model import Model
from fake_native import FakeNative, fake_core, fake_model
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_tokenizer
from oracle import generated, ours, prompt_of, theirs

native = pytest.fixture(fake_core)

Tiny = Callable[[str], Path]
KINDS = {"byte-level": "qwen3-f32", "byte fallback": "gemma4-f32"}
"""Tiny models whose tokenizers have tokens of single bytes, by kind of detokenizer."""


@pytest.fixture
def copied(tiny: Tiny, tmp_path: Path) -> Path:
    """A model folder to change."""
    return Path(shutil.copytree(tiny("qwen3-f32"), tmp_path / "model"))


def test_end_tokens_of_the_generation_config_end_a_text(copied: Path, tiny: Tiny) -> None:
    """Case 20: the tokenizer has one end token, generation_config.json has more: each of them ends the text."""
    prompt = prompt_of(tiny("qwen3-f32"), "chat")
    ids = generated(ours(tiny("qwen3-f32"))[0], prompt, 12)
    extra = next(token for token in ids[4:] if token not in ids[:4])
    tokenizer_end = ours(tiny("qwen3-f32"))[1].eos_token_id
    (copied / "generation_config.json").write_text(json.dumps({"eos_token_id": [tokenizer_end, extra]}))
    model, tokenizer = axlm.load(copied)
    assert tokenizer.eos_token_ids == {tokenizer_end, extra}
    responses = list(stream_generate(model, tokenizer, prompt, max_tokens=12))
    assert [response.token for response in responses] == ids[: ids.index(extra) + 1]
    assert responses[-1].finish_reason == "stop"
    assert "".join(response.text for response in responses) == tokenizer.decode(ids[: ids.index(extra)])


def test_a_byte_level_vocabulary_behind_a_decoder_of_another_kind(copied: Path) -> None:
    """Case 35: text with spaces, streamed and whole, and no letters that stand for bytes."""
    written = json.loads((copied / "tokenizer.json").read_text())
    pieces: list[dict[str, Any]] = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]
    pieces += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    text = "the sea is blue,  café\n日本 🙂"
    for decoder in ({"type": "Sequence", "decoders": pieces}, None):
        (copied / "tokenizer.json").write_text(json.dumps({**written, "decoder": decoder}))
        model, tokenizer = axlm.load(copied)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        detokenizer = tokenizer.detokenizer
        for token in ids:
            detokenizer.add_token(token)
        detokenizer.finalize()
        assert detokenizer.text == text
        model.close()


def test_no_tokens_and_no_limit_and_no_prompt(tiny: Tiny) -> None:
    """Case 21: max_tokens=0 is an error where a text is asked for, and processes the prompt where steps are; −1 is
    unlimited; an empty prompt is an error."""
    model, tokenizer = ours(tiny("qwen3-f32"))
    prompt = prompt_of(tiny("qwen3-f32"), "chat")
    for function in (axlm.generate, lambda *words, **options: list(stream_generate(*words, **options))):
        with pytest.raises(ValueError, match="max_tokens"):
            function(model, tokenizer, prompt, max_tokens=0)
        with pytest.raises(ValueError, match="empty"):
            function(model, tokenizer, [])
    cache = make_prompt_cache(theirs(tiny("qwen3-f32"))[0])
    assert list(generate_step(prompt, model, max_tokens=0, prompt_cache=cache)) == []
    assert cache[0].offset == len(prompt)
    unlimited = generate_step(prompt, model, max_tokens=-1)
    ids = [token for token, _ in (next(unlimited) for _ in range(300))]
    unlimited.close()
    assert ids[:256] == generated(model, prompt, 256)


@pytest.fixture(params=KINDS)
def tokenizer(request: pytest.FixtureRequest, tiny: Tiny) -> Any:
    return load_tokenizer(tiny(KINDS[request.param]))


@pytest.fixture
def model(native: FakeNative, tmp_path: Path) -> Iterator[Model]:
    yield from fake_model(native, tmp_path)


def byte_ids(tokenizer: Any, text: str) -> list[int]:
    """The tokens of a text's single bytes."""
    from tokenizers.pre_tokenizers import ByteLevel

    vocabulary = tokenizer.get_vocab()
    if "<0x41>" in vocabulary:
        return [vocabulary[f"<0x{byte:02X}>"] for byte in text.encode()]
    letters = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return [vocabulary[letter] for piece, _ in letters for letter in piece]


@pytest.mark.parametrize("text", ["ď", "ad\u0301x", "e\u0301x e\u0301x", "🙂", "a🙂b🙂", "日本語 ď🙂!"])
def test_characters_of_several_tokens_come_whole(model: Model, native: FakeNative, tokenizer: Any, text: str) -> None:
    """Case 22: whatever lies between two tokens of a character, no part of it is shown, and nothing twice."""
    native.script = tuple(byte_ids(tokenizer, text))
    assert len(native.script) == len(text.encode())
    responses = list(stream_generate(model, tokenizer, [1], max_tokens=len(native.script)))
    pieces = [response.text for response in responses]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    expected = mlx_lm_pieces(tokenizer, native.script)
    assert pieces == expected


def mlx_lm_pieces(tokenizer: Any, ids: tuple[int, ...]) -> list[str]:
    """What mlx_lm shows at each of these tokens."""

    class Scripted:
        """A module that generates the ids, whatever it is given."""

        layers = ()
        given = 0

        def __call__(self, tokens: mx.array, **_: Any) -> mx.array:
            logits = mx.zeros((1, tokens.shape[1], len(tokenizer.get_vocab())))
            logits[..., ids[min(self.given, len(ids) - 1)]] = 1.0
            self.given += 1
            return logits

    responses = mlx_lm.stream_generate(Scripted(), tokenizer, [1], max_tokens=len(ids))
    return [response.text for response in responses]


PARTS_TEMPLATE = (
    "{{- bos_token }}{%- for message in messages %}{{- message.role + ': ' }}"
    "{%- if message.content is string %}{{- message.content }}"
    "{%- else %}{%- for part in message.content %}{{- part.text }}{%- endfor %}{%- endif %}{{- '\\n' }}{%- endfor %}"
)


def test_a_chat_begins_once_and_takes_parts(tiny: Tiny, tmp_path: Path) -> None:
    """Case 23: content in parts gives the ids of the whole string, and the prompt has exactly one BOS."""
    folder = Path(shutil.copytree(tiny("llama-f32"), tmp_path / "model"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": PARTS_TEMPLATE}))
    model, tokenizer = axlm.load(folder)
    whole = [{"role": "user", "content": "hello, you"}]
    parts = [{"role": "user", "content": [{"type": "text", "text": text} for text in ("hello", ", you")]}]
    ids = tokenizer.apply_chat_template(whole)
    assert ids == tokenizer.apply_chat_template(parts) and ids.count(tokenizer.bos_token_id) == 1
    counts = {}
    for name, prompt in (("ids", ids), ("text", tokenizer.apply_chat_template(parts, tokenize=False))):
        counts[name] = next(stream_generate(model, tokenizer, prompt, max_tokens=1)).prompt_tokens
    assert counts == {"ids": len(ids), "text": len(ids)}
