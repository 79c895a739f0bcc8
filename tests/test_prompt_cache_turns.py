"""A conversation whose cache goes through a file between its turns, each turn by another engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from axlm import cli
from axlm.models import cache as ours
from caches import SUFFIXES
from mlx_lm.generate import generate_step
from mlx_lm.models import cache as theirs
from oracle import generated, prompt_of
from oracle import ours as our_model
from oracle import theirs as their_model

Tiny = Callable[[str], Path]
Turn = Callable[[Path, list[int], list[Any]], list[int]]

TOKENS = 12
FAMILIES = pytest.mark.parametrize("family", ["llama", "qwen3", "qwen3_5", "gemma4"])


def with_axlm(folder: Path, ids: list[int], cache: list[Any], **options: Any) -> list[int]:
    return generated(our_model(folder)[0], ids, TOKENS, prompt_cache=cache, **options)


def speculating(folder: Path, ids: list[int], cache: list[Any], **options: Any) -> list[int]:
    return with_axlm(folder, ids, cache, ngram=True, **options)


def with_mlx_lm(folder: Path, ids: list[int], cache: list[Any], **options: Any) -> list[int]:
    steps = generate_step(mx.array(ids), their_model(folder)[0], max_tokens=TOKENS, prompt_cache=cache, **options)
    return [int(token) for token, _ in steps]


def conversation(
    folder: Path, turns: list[Turn], through: Callable[[list[Any], int], list[Any]], cache: list[Any], **options: Any
) -> list[list[int]]:
    """The ids of each turn; ``through(cache, turn)`` gives the cache with which the next one goes on."""
    text = prompt_of(folder, "long")
    parts = [text[:60], text[60:61], text[20:47]]
    said = []
    for number, turn in enumerate(turns):
        said.append(turn(folder, parts[number], cache, **options))
        cache = through(cache, number)
    return said


ENGINES: dict[str, list[Turn]] = {
    "axlm, mlx_lm, axlm": [with_axlm, with_mlx_lm, with_axlm],
    "mlx_lm, axlm, mlx_lm": [with_mlx_lm, speculating, with_mlx_lm],
    "axlm alone": [speculating, with_axlm, speculating],
}


@SUFFIXES
@FAMILIES
@pytest.mark.parametrize("engines", ENGINES.values(), ids=list(ENGINES))
def test_turns_through_files(tiny: Tiny, tmp_path: Path, family: str, engines: list[Turn], suffix: str) -> None:
    folder = tiny(f"{family}-f32")

    def through_a_file(cache: list[Any], turn: int) -> list[Any]:
        file = tmp_path / f"turn{turn}{suffix}"
        ours.save_prompt_cache(file, cache, {"turn": str(turn)})
        load = theirs.load_prompt_cache if suffix == ".safetensors" else ours.load_prompt_cache
        loaded, metadata = load(str(file), return_metadata=True)
        assert metadata == {"turn": str(turn)}
        assert [type(c) for c in loaded] == [type(c) for c in cache]
        return loaded

    model = their_model(folder)[0]
    found = conversation(folder, engines, through_a_file, theirs.make_prompt_cache(model))
    wanted = conversation(folder, [with_mlx_lm] * 3, lambda cache, _: cache, theirs.make_prompt_cache(model))
    assert found == wanted


@pytest.mark.parametrize(
    ("family", "size", "options"),
    [
        ("qwen3", 32, {}),
        ("qwen3", None, {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}),
        ("qwen3", None, {"kv_bits": 4, "kv_group_size": 32, "quantized_kv_start": 70}),
        ("qwen3_5", None, {"kv_bits": 8, "kv_group_size": 32, "quantized_kv_start": 0}),
    ],
    ids=["bounded", "quantised", "quantised in the second turn", "recurrent and quantised"],
)
@pytest.mark.parametrize("engines", ENGINES.values(), ids=list(ENGINES))
def test_other_forms_of_cache(
    tiny: Tiny, tmp_path: Path, family: str, size: int | None, options: dict[str, Any], engines: list[Turn]
) -> None:
    folder = tiny(f"{family}-f32")

    def through_a_file(cache: list[Any], turn: int) -> list[Any]:
        file = str(tmp_path / f"turn{turn}.safetensors")
        (theirs if turn else ours).save_prompt_cache(file, cache)
        return (ours if turn else theirs).load_prompt_cache(file)

    model = their_model(folder)[0]
    found = conversation(folder, engines, through_a_file, theirs.make_prompt_cache(model, size), **options)
    kept = conversation(folder, [with_mlx_lm] * 3, lambda c, _: c, theirs.make_prompt_cache(model, size), **options)
    assert found == kept


def test_a_cache_is_saved_while_a_generator_uses_it(tiny: Tiny, tmp_path: Path) -> None:
    """The file holds the prompt and the tokens that were read; the generator goes on as if nothing had been."""
    import axlm

    folder = tiny("qwen3_5-f32")
    ids = prompt_of(folder, "text")
    model = our_model(folder)[0]
    cache = ours.make_prompt_cache(their_model(folder)[0])
    file = tmp_path / "cache.safetensors.zst"
    found = []
    for token, _ in axlm.generate_step(ids, model, max_tokens=TOKENS, prompt_cache=cache, ngram=True):
        found.append(token)
        if len(found) == 5:
            ours.save_prompt_cache(file, cache)
    wanted = with_mlx_lm(folder, ids, theirs.make_prompt_cache(their_model(folder)[0]))
    assert found == wanted
    loaded = ours.load_prompt_cache(file)
    assert next(c.offset for c in loaded if isinstance(c, ours.KVCache)) == len(ids) + 5
    assert len(with_mlx_lm(folder, ids[:3], loaded)) == TOKENS


def test_trimming_a_loaded_cache(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny("qwen3-f32")
    ids = prompt_of(folder, "text")
    cache = ours.make_prompt_cache(their_model(folder)[0])
    wanted = with_axlm(folder, ids, cache)
    ours.save_prompt_cache(tmp_path / "cache.zst", cache)
    loaded = ours.load_prompt_cache(tmp_path / "cache.zst")
    assert ours.can_trim_prompt_cache(loaded)
    assert ours.trim_prompt_cache(loaded, TOKENS + 3) == TOKENS + 3
    assert with_axlm(folder, ids[-3:], loaded) == wanted


def test_the_commands_take_compressed_files(tiny: Tiny, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tiny("qwen3-f32"))
    texts = []
    for suffix in (".safetensors", ".safetensors.zst"):
        file = str(tmp_path / f"cache{suffix}")
        prompt = ["--model", folder, "--prompt", "The sea is wide and the sea is deep; the sea"]
        assert cli.main(["cache_prompt", *prompt, "--prompt-cache-file", file]) == 0
        capsys.readouterr()
        assert cli.main(["generate", "--prompt-cache-file", file, "-p", "was calm", "-m", "12", "--verbose", "F"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and len(texts[0]) > 5
    Path(file).write_bytes(Path(file).read_bytes()[:-9])
    assert cli.main(["generate", "--prompt-cache-file", file, "-p", "was calm"]) == 1
    message = capsys.readouterr().err
    assert file in message and "truncated" in message and message.count("\n") == 1
