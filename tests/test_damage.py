"""Model folders that are wrong: each gives a clear error of the right class, and the next call works."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import axlm
import mlx.core as mx
import mlx_lm.utils
import pytest

Tiny = Callable[[str], Path]
Damage = Callable[[Path], Any]


def change_config(**entries: Any) -> Damage:
    def damage(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **entries}))

    return damage


def drop_config_key(key: str) -> Damage:
    def damage(folder: Path) -> None:
        file = folder / "config.json"
        config = json.loads(file.read_text())
        del config[key]
        file.write_text(json.dumps(config))

    return damage


def write(name: str, content: bytes) -> Damage:
    return lambda folder: (folder / name).write_bytes(content)


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def truncate(name: str, keep: float) -> Damage:
    def damage(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * keep)])

    return damage


def change_weights(change: Callable[[dict[str, mx.array]], Any]) -> Damage:
    def damage(folder: Path) -> None:
        file = folder / "model.safetensors"
        weights = dict(mx.load(str(file)))
        change(weights)
        mx.save_safetensors(str(file), weights, {"format": "mlx"})

    return damage


def shard(folder: Path) -> None:
    """Split the weights into two files with an index."""
    weights = dict(mx.load(str(folder / "model.safetensors")))
    names = sorted(weights)
    files = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in files.items():
        mx.save_safetensors(str(folder / file), {name: weights[name] for name in part}, {"format": "mlx"})
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()


def swap(folder: Path) -> None:
    """Put the first shard in the second's place."""
    (folder / SECOND).write_bytes((folder / SECOND.replace("00002-", "00001-")).read_bytes())


def then(*steps: Damage) -> Damage:
    def damage(folder: Path) -> None:
        for step in steps:
            step(folder)

    return damage


NORM = "model.norm.weight"
KEY = "model.layers.0.self_attn.k_proj.weight"
SECOND = "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
HUGE_HEADER = struct.pack("<Q", 2**62) + b"{}"
BEYOND = json.dumps({NORM: {"dtype": "F32", "shape": [128], "data_offsets": [0, 512]}}).encode()
OUT_OF_RANGE = struct.pack("<Q", len(BEYOND)) + BEYOND + b"\0" * 16

CASES: dict[str, tuple[Damage, type[Exception], str]] = {
    "no config": (remove("config.json"), FileNotFoundError, r"config\.json"),
    "empty config": (write("config.json", b""), ValueError, r"config\.json"),
    "config is no object": (write("config.json", b"[1]"), ValueError, r"config\.json"),
    "unknown family": (change_config(model_type="mamba9"), ValueError, r"mamba9.*llama.*qwen3"),
    "no family": (drop_config_key("model_type"), ValueError, "model_type"),
    "a key is missing": (drop_config_key("hidden_size"), ValueError, "hidden_size"),
    "a key is text": (change_config(hidden_size="wide"), ValueError, "hidden_size"),
    "a key is negative": (change_config(num_attention_heads=-4), ValueError, "num_attention_heads"),
    "a key is zero": (change_config(num_attention_heads=0), ValueError, "num_attention_heads"),
    "a huge number of layers": (change_config(num_hidden_layers=10**9), ValueError, "num_hidden_layers|layers"),
    "one layer too many": (change_config(num_hidden_layers=7), ValueError, r"layers\.6"),
    "one layer too few": (change_config(num_hidden_layers=5), ValueError, r"layers\.5"),
    "no weights": (remove("model.safetensors"), FileNotFoundError, "safetensors"),
    "empty weights": (write("model.safetensors", b""), ValueError, r"model\.safetensors"),
    "weights are text": (write("model.safetensors", b"not weights at all"), ValueError, r"model\.safetensors"),
    "a huge header": (write("model.safetensors", HUGE_HEADER), ValueError, r"model\.safetensors"),
    "data out of range": (write("model.safetensors", OUT_OF_RANGE), ValueError, r"model\.safetensors"),
    "truncated header": (truncate("model.safetensors", 0.0005), ValueError, r"model\.safetensors"),
    "truncated data": (truncate("model.safetensors", 0.9), ValueError, r"model\.safetensors"),
    "a tensor is missing": (change_weights(lambda w: w.pop(KEY)), ValueError, KEY),
    "a tensor is too many": (
        change_weights(lambda w: w.update({"model.surprise.weight": mx.zeros((3,))})),
        ValueError,
        r"model\.surprise\.weight",
    ),
    "a tensor has another shape": (change_weights(lambda w: w.update({KEY: w[KEY][:-1]})), ValueError, KEY),
    "a norm has another shape": (change_weights(lambda w: w.update({NORM: mx.ones((7,))})), ValueError, NORM),
    # case 26, with the index file and without it
    "a shard is missing": (then(shard, remove(SECOND)), FileNotFoundError, SECOND),
    "a shard is empty": (then(shard, write(SECOND, b"")), ValueError, SECOND),
    "a shard is truncated": (then(shard, truncate(SECOND, 0.5)), ValueError, SECOND),
    "a shard is cut in its header": (then(shard, truncate(SECOND, 0.001)), ValueError, SECOND),
    "a shard is another one": (then(shard, swap), ValueError, SECOND),
    "no index, a shard is missing": (then(shard, remove(INDEX), remove(SECOND)), ValueError, SECOND),
    "no index, a shard is empty": (then(shard, remove(INDEX), write(SECOND, b"")), ValueError, SECOND),
    "no index, a shard is truncated": (then(shard, remove(INDEX), truncate(SECOND, 0.5)), ValueError, SECOND),
}


@pytest.fixture
def broken(tiny: Tiny, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny("qwen3-f32"), tmp_path / "broken"))


@pytest.mark.parametrize("case", CASES)
def test_damage_is_explained(tiny: Tiny, broken: Path, case: str) -> None:
    damage, error, text = CASES[case]
    damage(broken)
    with pytest.raises(error, match=text) as caught:
        axlm.load(broken)
    assert "\n" not in str(caught.value)
    model, _ = axlm.utils.load_model(tiny("qwen3-nano-f32"))
    assert len(list(axlm.generate_step([1, 2], model, max_tokens=3))) == 3
    model.close()


@pytest.mark.parametrize("with_index", [True, False])
def test_shards_give_what_one_file_gives(tiny: Tiny, broken: Path, with_index: bool) -> None:
    """Case 26: sharded weights load with the index file and without it."""
    shard(broken)
    if not with_index:
        (broken / "model.safetensors.index.json").unlink()
    tokens = mx.array([[1, 2, 3]])
    whole, _ = axlm.utils.load_model(tiny("qwen3-f32"))
    split, _ = axlm.utils.load_model(broken)
    assert mx.array_equal(whole(tokens), split(tokens))
    whole.close()
    split.close()


def equal_to_mlx_lm(folder: Path) -> None:
    tokens = mx.array([[1, 2, 3]])
    theirs, _ = mlx_lm.utils.load_model(folder)
    ours, _ = axlm.utils.load_model(folder)
    assert mx.allclose(ours(tokens), theirs(tokens), rtol=1e-4, atol=1e-4)
    ours.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"weight_map": {"model.norm.weight": "../model.safetensors"}}',
        b'{"weight_map": {"model.norm.weight": "other.safetensors"}}',
        b'{"weight_map": {"lost.weight": "model-00001-of-00002.safetensors"}}',
    ],
    ids=["empty", "leads elsewhere", "names another file", "names a lost tensor"],
)
def test_the_index_decides_nothing(broken: Path, content: bytes) -> None:
    """Files that hold every tensor are complete, whatever the index says: mlx_lm does not read it."""
    shard(broken)
    (broken / INDEX).write_bytes(content)
    equal_to_mlx_lm(broken)


def test_a_left_over_index(broken: Path) -> None:
    """Case 33: an index of shards that are gone, beside one file that holds every tensor."""
    weights = dict(mx.load(str(broken / "model.safetensors")))
    places = {n: f"model-0000{i % 3 + 1}-of-00003.safetensors" for i, n in enumerate(weights)}
    (broken / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": places}))
    equal_to_mlx_lm(broken)
    norm = weights.pop(NORM)
    mx.save_safetensors(str(broken / "model.safetensors"), weights, {"format": "mlx"})
    with pytest.raises(ValueError, match=f"{NORM} is missing"):
        axlm.load(broken)
    mx.save_safetensors(str(broken / "model.safetensors"), weights | {NORM: norm}, {"format": "mlx"})
    equal_to_mlx_lm(broken)


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("placed", [None, "model-a.safetensors", "model.safetensors"])
def test_two_tensors_of_one_name(broken: Path, order: int, placed: str | None) -> None:
    """Left-over files beside shards: table and data are those that mlx_lm takes, in whatever order files are listed."""
    shard(broken)
    extra = {"model-a.safetensors": 2.0, "model.safetensors": 3.0, "model-00003-of-00003.safetensors": 5.0}
    for name in list(extra)[::order]:
        mx.save_safetensors(str(broken / name), {NORM: mx.full((128,), extra[name])}, {"format": "mlx"})
    if placed:
        (broken / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {NORM: placed}}))
    equal_to_mlx_lm(broken)


@pytest.mark.parametrize(
    ("name", "error"),
    [("none", FileNotFoundError), ("/none/of/these", FileNotFoundError), (__file__, NotADirectoryError)],
)
def test_what_is_no_folder(name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        axlm.load(name)


def test_a_file_that_cannot_be_read_is_an_os_error(broken: Path) -> None:
    (broken / "model.safetensors").unlink()
    (broken / "model.safetensors").mkdir()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        axlm.load(broken)
