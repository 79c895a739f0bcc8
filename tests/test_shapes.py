"""Published shapes: their numbers, folders of random weights, and what is measured on them."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from axlm import _random_weights, cli, shapes
from axlm.suite import shape_run
from axlm.suite.engines import Run
from axlm.suite.shape_run import StepEngine, measure_shape, repetition, step_engines

# Two layers of each kind that the family has, and as narrow as quantisation in groups of 64 allows.
SMALL: dict[str, dict[str, Any]] = {
    "qwen3-4b": {
        "layers": 2,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 512,
    },
    "gemma-4-e2b-it": {
        "layers": 10,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "head_dim": 64,
        "global_head_dim": 128,
        "hidden_size_per_layer_input": 64,
        "vocab_size": 512,
    },
    "qwen3.5-9b": {
        "layers": 8,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_num_value_heads": 8,
        "linear_num_key_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "vocab_size": 512,
    },
}
SMALL["gemma-4-e4b-it"] = {**SMALL["gemma-4-e2b-it"], "layers": 12}


@pytest.fixture(autouse=True)
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collecting garbage between runs takes longer than what these tests measure."""
    monkeypatch.setattr("axlm.suite.shape_run.gc.collect", lambda: 0)


# Configurations


@pytest.mark.parametrize(
    ("name", "weights", "gigabytes"),
    [
        ("qwen3-4b", 4_022_468_096, 2.26),
        ("gemma-4-e2b-it", 4_628_569_379, 2.60),
        ("gemma-4-e4b-it", 7_463_013_418, 4.20),
        ("qwen3.5-9b", 8_953_803_264, 5.04),
    ],
)
def test_a_shape_has_the_published_number_of_weights(name: str, weights: int, gigabytes: float) -> None:
    config = shapes.configuration(name)
    plain = shapes.parameters(config, 16)
    assert sum(math.prod(shape) for shape, _ in plain.values()) == weights
    assert {entry.dtype for key, entry in plain.items() if not key.endswith("A_log")} == {"bfloat16"}
    packed = shapes.parameters(config, 4)
    size = sum(_random_weights.nbytes(*entry) for entry in packed.values())
    assert size / 1e9 == pytest.approx(gigabytes, abs=0.01)


def test_shapes_of_single_tensors() -> None:
    def shape(name: str, tensor: str, bits: int = 16) -> tuple[int, ...]:
        return shapes.parameters(shapes.configuration(name), bits)[tensor].shape

    assert shape("qwen3-4b", "model.layers.35.self_attn.q_proj.weight") == (4096, 2560)
    assert shape("qwen3-4b", "model.layers.35.self_attn.k_proj.weight") == (1024, 2560)
    assert shape("qwen3-4b", "model.layers.35.mlp.down_proj.weight") == (2560, 9728)
    assert shape("qwen3-4b", "model.embed_tokens.weight") == (151936, 2560)
    assert shape("qwen3-4b", "model.embed_tokens.weight", 4) == (151936, 320)
    assert shape("qwen3-4b", "model.embed_tokens.weight", 8) == (151936, 640)
    assert shape("qwen3-4b", "model.embed_tokens.scales", 4) == (151936, 40)
    e2b = "language_model.model.layers.34."
    assert shape("gemma-4-e2b-it", e2b + "self_attn.q_proj.weight") == (4096, 1536)  # full attention, 512 a head
    assert shape("gemma-4-e2b-it", e2b + "mlp.up_proj.weight") == (12288, 1536)  # double where keys are shared
    assert shape("gemma-4-e2b-it", "language_model.model.layers.0.mlp.up_proj.weight") == (6144, 1536)
    assert shape("gemma-4-e2b-it", "language_model.model.embed_tokens_per_layer.weight") == (262144, 8960)
    e4b = "language_model.model.layers.23."
    assert shape("gemma-4-e4b-it", e4b + "self_attn.k_proj.weight") == (1024, 2560)  # the last with keys of its own
    assert shape("gemma-4-e4b-it", "language_model.model.layers.41.mlp.up_proj.weight") == (10240, 2560)
    assert e4b.replace("23", "24") + "self_attn.k_proj.weight" not in shapes.parameters(
        shapes.configuration("gemma-4-e4b-it"), 16
    )
    nine = "language_model.model.layers.30."
    assert shape("qwen3.5-9b", nine + "linear_attn.in_proj_qkv.weight") == (8192, 4096)
    assert shape("qwen3.5-9b", nine + "linear_attn.conv1d.weight") == (8192, 4, 1)
    assert shape("qwen3.5-9b", "language_model.model.layers.31.self_attn.q_proj.weight") == (8192, 4096)
    assert shape("qwen3.5-9b", "language_model.lm_head.weight") == (248320, 4096)


def test_fewer_layers_keep_kinds_and_sharing() -> None:
    text = shapes.configuration("gemma-4-e2b-it")["text_config"]
    assert text["layer_types"].count("full_attention") == 7 and text["layer_types"][4] == "full_attention"
    assert (len(text["layer_types"]), text["num_kv_shared_layers"]) == (35, 20)
    text = shapes.configuration("gemma-4-e2b-it", layers=10)["text_config"]
    assert (len(text["layer_types"]), text["num_kv_shared_layers"]) == (10, 5)
    for layers in range(1, 36):  # whatever is shared has a source
        text = shapes.configuration("gemma-4-e2b-it", layers=layers)["text_config"]
        own = layers - text["num_kv_shared_layers"]
        assert set(text["layer_types"][own:]) <= set(text["layer_types"][:own])
    text = shapes.configuration("gemma-4-e4b-it")["text_config"]
    assert [i for i, kind in enumerate(text["layer_types"]) if kind == "full_attention"] == [5, 11, 17, 23, 29, 35, 41]
    assert text["num_kv_shared_layers"] == 18


def test_changes_reach_every_place() -> None:
    config = shapes.configuration("gemma-4-e2b-it", vocab_size=512)
    text = config["text_config"]
    assert (config["vocab_size"], text["vocab_size"], text["vocab_size_per_layer_input"]) == (512, 512, 512)
    assert shapes.configuration("gemma-4-e2b-it")["vocab_size"] == 262144


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "qwen9"}, "no shape 'qwen9'; there are qwen3-4b"),
        ({"name": "qwen3-4b", "layers": 37}, "keep 1 to 36"),
        ({"name": "qwen3-4b", "layers": 0}, "keep 1 to 36"),
        ({"name": "qwen3-4b", "width": 3}, "no 'width'"),
    ],
)
def test_wrong_configurations_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shapes.configuration(**arguments)


# Folders


def make(name: str, out: Path, bits: int = 4, **changes: Any) -> Path:
    return shapes.make(name, out / f"{name}-{bits}", bits, **{**SMALL[name], **changes})


def headers(folder: Path) -> dict[str, dict[str, Any]]:
    """The headers of a folder's files; each must fit its file exactly."""
    entries = {}
    for file in folder.glob("*.safetensors"):
        data = file.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        assert length % 8 == 0
        header = json.loads(data[8 : 8 + length])
        assert header.pop("__metadata__") == {"format": "mlx"}
        assert max(entry["data_offsets"][1] for entry in header.values()) == len(data) - 8 - length
        entries.update(header)
    return entries


@pytest.mark.parametrize("bits", shapes.BITS)
@pytest.mark.parametrize("name", shapes.NAMES)
def test_a_folder_holds_what_its_plan_says(name: str, bits: int, tmp_path: Path) -> None:
    folder = make(name, tmp_path, bits)
    config = shapes.configuration(name, **SMALL[name])
    plan = shapes.parameters(config, bits)
    assert {key: tuple(entry["shape"]) for key, entry in headers(folder).items()} == {
        key: entry.shape for key, entry in plan.items()
    }


@pytest.mark.parametrize(
    ("name", "bits"), [*((name, bits) for name in shapes.NAMES for bits in (4, 16)), (shapes.NAMES[0], 8)]
)
def test_both_engines_generate_the_same_from_a_folder(name: str, bits: int, tmp_path: Path) -> None:
    """Few tokens: MLX's CPU kernels for 16-bit quantised weights are slow. Eight bits are four bits' code."""
    folder = make(name, tmp_path, bits)
    engines = step_engines(folder, ("mlx_lm", "plain", "ngram"), 16, {"shared_bytes": 0})
    (entry,) = measure_shape(engines, [list(range(3, 33))], ["loop"], tokens=16, trials=1)
    assert all(difference["near_tie"] for difference in entry["differences"]), entry["differences"]
    assert all(engine["decode_tps"] > 0 and engine["prompt_tps"] > 0 for engine in entry["engines"].values())
    assert set(entry["ratios"]) == {"plain/mlx_lm", "ngram/mlx_lm", "ngram/plain"}
    assert entry["engines"]["ngram"]["speculation"]["steps"] > 0
    assert entry["engines"]["plain"]["speculation"] is None
    engines[1].model.close()


def test_the_seed_decides_the_weights(tmp_path: Path) -> None:
    folders = [shapes.make("qwen3-4b", tmp_path / str(i), 4, i // 2, **SMALL["qwen3-4b"]) for i in range(4)]
    first, again, other, _ = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == again != other


def test_pieces_make_no_difference_to_shapes_and_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = mx.load(str(make("qwen3.5-9b", tmp_path / "whole", 16) / "model.safetensors"))
    monkeypatch.setattr(_random_weights, "PIECE", 1000)
    pieces = mx.load(str(make("qwen3.5-9b", tmp_path / "pieces", 16) / "model.safetensors"))
    assert {key: value.shape for key, value in whole.items()} == {key: value.shape for key, value in pieces.items()}
    for key, value in whole.items():
        assert mx.std(value).item() == pytest.approx(mx.std(pieces[key]).item(), rel=0.05), key
    rows = pieces["language_model.model.embed_tokens.weight"]
    assert len({tuple(row) for row in rows[:, :4].tolist()}) == 512  # no piece repeats another


def test_large_folders_have_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_random_weights, "SHARD", 50_000)
    folder = make("qwen3-4b", tmp_path)
    files = sorted(file.name for file in folder.glob("*.safetensors"))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(headers(folder)) and set(index["weight_map"].values()) == set(files)
    engines = step_engines(folder, ("mlx_lm", "plain"), 16, {})
    assert engines[0].run([1, 2, 3], 4).tokens == engines[1].run([1, 2, 3], 4).tokens


def test_quantised_weights_are_the_plain_ones_rounded(tmp_path: Path) -> None:
    plain = mx.load(str(make("qwen3-4b", tmp_path, 16) / "model.safetensors"))
    packed = mx.load(str(make("qwen3-4b", tmp_path, 4) / "model.safetensors"))
    module = "model.layers.1.mlp.down_proj"
    parts = [packed[f"{module}.{part}"] for part in ("weight", "scales", "biases")]
    error = mx.abs(mx.dequantize(*parts, group_size=64, bits=4) - plain[f"{module}.weight"]).max()
    assert 0 < error.item() <= 1.01 * parts[1].max().item()


def test_an_untied_head_leads_round_eight_tokens(tmp_path: Path) -> None:
    weights = mx.load(str(make("qwen3.5-9b", tmp_path, 16) / "model.safetensors"))
    embedding, head = weights["language_model.model.embed_tokens.weight"], weights["language_model.lm_head.weight"]
    for token in (0, 6, 7, 508):
        after = token + 1 if (token + 1) % 8 else token - 7
        assert mx.array_equal(head[after], embedding[token])


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make("qwen3-4b", tmp_path)
    before = (tmp_path / "qwen3-4b-4" / "model.safetensors").read_bytes()

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(_random_weights, "_write_shard", fail)
        with pytest.raises(OSError, match="disk full"):
            make("qwen3-4b", tmp_path, hidden_size=64)
    assert [path.name for path in tmp_path.iterdir()] == ["qwen3-4b-4"]
    assert (tmp_path / "qwen3-4b-4" / "model.safetensors").read_bytes() == before
    make("qwen3-4b", tmp_path, hidden_size=64)
    assert (tmp_path / "qwen3-4b-4" / "model.safetensors").read_bytes() != before


def test_a_full_disk_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10**9})
    monkeypatch.setattr("axlm.shapes.shutil.disk_usage", lambda path: usage)
    with pytest.raises(OSError, match=r"qwen3-4b takes 2\.3 GB, .* has room for 1\.0 GB"):
        shapes.make("qwen3-4b", tmp_path / "out")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("bits", [3, 0])
def test_other_bits_are_refused(tmp_path: Path, bits: int) -> None:
    with pytest.raises(ValueError, match="want one of 4, 8, 16"):
        make("qwen3-4b", tmp_path, bits)


def test_the_cache_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def fake(shape: str, out: Path, bits: int, seed: int) -> Path:
        made.append((shape, bits, seed))
        out.mkdir(parents=True)
        (out / "config.json").write_text("{}")
        return out

    monkeypatch.setenv("AXLM_CACHE", str(tmp_path))
    monkeypatch.setattr(shapes, "make", fake)
    assert shapes.cached("qwen3-4b", 8) == shapes.cached("qwen3-4b", 8)
    assert shapes.cached("qwen3-4b").is_relative_to(tmp_path)
    assert made == [("qwen3-4b", 8, 0), ("qwen3-4b", 4, 0)]
    with pytest.raises(ValueError, match="no shape"):
        shapes.cached("../x")


# What the weights do


@pytest.mark.parametrize("name", shapes.NAMES)
def test_greedy_decoding_loops_and_sampling_does_not(name: str, tmp_path: Path) -> None:
    folder = make(name, tmp_path, 16, layers=12, vocab_size=1 << 16)
    (engine,) = step_engines(folder, ("mlx_lm",), 512, {})
    prompt = mx.random.randint(0, 1 << 16, (32,), key=mx.random.key(1)).tolist()
    assert repetition(prompt, engine.run(prompt, 40).tokens) > 0.6
    assert repetition(prompt, engine.run(prompt, 40, seed=1).tokens) < 0.1
    assert engine.run(prompt, 8, seed=1).tokens != engine.run(prompt, 8, seed=2).tokens


def test_repetition_counts_what_a_bigram_foretells() -> None:
    assert repetition([1, 2, 3], [4, 5, 6]) == 0
    assert repetition([1, 2, 3, 1, 2], [3, 1, 2, 9]) == 0.75
    assert repetition([7], [7, 7, 7, 7]) == 0.5
    assert repetition([1, 2], []) == 0


# Measuring


def steps_of(scripts: dict[int | None, list[int]], seen: list[Any]) -> Callable[..., Any]:
    """A ``generate_step`` that gives a script by the seed of the sampling, None for greedy."""

    def step(prompt: Any, model: Any, *, max_tokens: int, sampler: Any = None, **options: Any) -> Any:
        seed = None if sampler is None else mx.random.state[0].tolist()[1]
        seen.append((list(prompt), max_tokens, seed, options))
        for token in scripts[seed][:max_tokens]:
            yield token, mx.array([0.0, -0.5, -1.0])

    return step


def test_modes_and_engines_take_turns() -> None:
    seen: list[Any] = []
    scripts = {None: [5] * 9, 0: [1, 2, 3, 4], 1: [4, 5, 6, 7]}
    engines = [StepEngine(name, steps_of(scripts, seen), None, lambda temp: temp, prefill_step_size=7) for name in "ab"]
    ticks: list[tuple[int, int]] = []
    entries = measure_shape(
        engines, [[1, 2]], ["loop", "noloop"], tokens=4, trials=1, progress=lambda *tick: ticks.append(tick)
    )
    assert [seed for _, _, seed, _ in seen] == [None] * 4 + [0, 0, 1, 1]
    assert all(call[:2] == ([1, 2], 4) and call[3] == {"prefill_step_size": 7} for call in seen)
    assert ticks == [(done, 8) for done in range(9)]
    assert [(entry["mode"], entry["prompt_tokens"], entry["tokens"]) for entry in entries] == [
        ("loop", 2, 4),
        ("noloop", 2, 4),
    ]
    assert entries[0]["repetition"] == 0.25
    assert entries[0]["ratios"] == {}  # of engines with other names


def test_differences_in_a_loop_are_judged_and_in_sampling_told() -> None:
    first = StepEngine("mlx_lm", steps_of({None: [5] * 9, 0: [1, 2, 3], 1: [1, 2, 3]}, []), None, lambda temp: temp)
    other = StepEngine("plain", steps_of({None: [5, 6] * 9, 0: [1, 9, 3], 1: [1, 2, 3]}, []), None, lambda temp: temp)
    loop, noloop = measure_shape([first, other], [[1, 2]], ["loop", "noloop"], tokens=3, trials=1)
    (found,) = loop["differences"]
    assert (found["engine"], found["index"], found["plain"], found["other"]) == ("plain", 1, 5, 6)
    assert (found["margin"], found["near_tie"]) == (0.5, False)
    (found,) = noloop["differences"]
    assert (found["index"], found["plain"], found["other"], found["margin"]) == (1, 2, 9, None)
    report = {"entries": [loop, noloop], "cost": None}
    lines = shape_run.describe_shape(report).splitlines()
    assert lines[0].split()[:3] == ["mode", "prompt", "engine"]
    assert lines[2].split()[:3] == ["loop", "2", "plain"] and "×" in lines[2]
    assert lines[-2] == "loop after 2 tokens, plain: token 1 is 6 instead of 5 (NOT A NEAR TIE, margin 0.5000)"
    assert lines[-1] == "noloop after 2 tokens, plain: token 1 is 9 instead of 2"


# The command


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The command on a small folder; gives what was asked of the cache."""
    asked: list[tuple[Any, ...]] = []

    def cached(shape: str, bits: int) -> Path:
        asked.append((shape, bits))
        return make(shape, tmp_path, bits)

    monkeypatch.setattr(shapes, "cached", cached)
    return asked


def test_the_command_measures_a_shape(
    small: list[tuple[Any, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    words = ["benchmark", "--shape", "qwen3-4b", "--quantize", "8", "-p", "12", "20", "-g", "8", "-n", "1"]
    assert cli.main([*words, "--json", str(file)]) == 0
    assert small == [("qwen3-4b", 8)]
    out = capsys.readouterr().out
    assert out.startswith("mode") and out.count("mlx_lm") > 4
    report = json.loads(file.read_text())
    assert (report["kind"], report["shape"], report["bits"], report["generation_tokens"]) == ("shape", "qwen3-4b", 8, 8)
    assert [(entry["mode"], entry["prompt_tokens"]) for entry in report["entries"]] == [
        ("loop", 12),
        ("loop", 20),
        ("noloop", 12),
        ("noloop", 20),
    ]
    assert report["environment"]["device"] and report["cost"]["widths"]


def test_the_command_measures_what_is_asked_for(
    small: list[tuple[Any, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--modes", "loop", "--engines", "plain", "-p", "12", "-g", "4", "-n", "1", "--json"]
    assert cli.main(["benchmark", "--shape", "qwen3-4b", *words]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert list(entry["engines"]) == ["plain"] and entry["mode"] == "loop"


def test_a_wrong_loop_fails_the_command(
    small: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    original = StepEngine.run

    def corrupt(self: StepEngine, prompt: Sequence[int], tokens: int, seed: int | None = None) -> Run:
        result = original(self, prompt, tokens, seed)
        if self.name == "ngram" and seed is None:
            result.tokens.pop()
        return result

    monkeypatch.setattr(StepEngine, "run", corrupt)
    assert cli.main(["benchmark", "--shape", "qwen3-4b", "-p", "12", "-g", "6", "-n", "1", "--modes", "loop"]) == 1
    assert "token 5 is the end instead of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--model", "m"], "--model"),
        (["--plot", "x.png"], "--plot"),
        (["--classes", "story"], "--classes"),
        (["--per-class", "1"], "--per-class"),
        (["-p", "0", "5"], "--prompt-tokens"),
        (["-g", "0"], "--generation-tokens"),
        (["--ngram", "F"], "--ngram"),
    ],
)
def test_what_does_not_go_with_a_shape_is_refused(
    small: list[tuple[Any, ...]], words: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["benchmark", "--shape", "qwen3-4b", *words]) == 2
    assert name in capsys.readouterr().err
    assert not small
