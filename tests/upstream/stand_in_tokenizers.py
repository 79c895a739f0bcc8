"""Tokenizers of the stand-ins: each has what mlx_lm's tests ask of that of the repository that it stands for."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from fixtures import tiny_tokenizers

QWEN_SIZE = 4096
QWEN_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN_HALF_CHARACTER = 3219
"""The token of Qwen1.5 that is two bytes from the middle of a character: decoding it gives two U+FFFD."""

# A system message is put in where there is none, as Qwen1.5 does.
QWEN_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou answer in few words.<|im_end|>\\n' }}{% endif %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def qwen15() -> tuple[dict[str, Any], dict[str, Any]]:
    """Byte-level BPE whose first token is "!" and whose special tokens are the last, as Qwen1.5 has them.

    Returns:
        The contents of tokenizer.json and tokenizer_config.json.
    """
    content = _trained("qwen")
    model = content["model"]
    plain = [token for token in sorted(model["vocab"], key=model["vocab"].get) if token not in _specials("qwen")]
    alphabet = [token for token in plain if len(token) == 1]
    tokens = alphabet + [token for token in plain if len(token) > 1]
    # Pairs of letters that no merge makes fill the places up to the half character and the special tokens.
    known = set(tokens)
    letters = alphabet[:94]  # printable ASCII
    fillers = (a + b for a in letters for b in letters if a + b not in known)
    half = alphabet[-1] + alphabet[-2]
    while len(tokens) < QWEN_SIZE - len(QWEN_SPECIALS):
        tokens.append(half if len(tokens) == QWEN_HALF_CHARACTER else next(fillers))
    model["vocab"] = {token: index for index, token in enumerate(tokens)}
    content["added_tokens"] = _added(QWEN_SPECIALS, len(tokens))
    return content, _config(content, QWEN_TEMPLATE, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def qwen3() -> tuple[dict[str, Any], dict[str, Any]]:
    """Byte-level BPE with the tokens of thinking and tool calls."""
    return _of_kind("qwen")


def llama3() -> tuple[dict[str, Any], dict[str, Any]]:
    """Byte-level BPE with a BOS token, without thinking and tool calls."""
    return _of_kind("llama")


def deepseek2() -> tuple[dict[str, Any], dict[str, Any]]:
    """Byte-level BPE whose special tokens are written with characters that are not in a byte-level alphabet."""
    return _renamed("llama", {"<|begin_of_text|>": "<｜begin▁of▁sentence｜>", "<|eot_id|>": "<｜end▁of▁sentence｜>"})


def lfm2() -> tuple[dict[str, Any], dict[str, Any]]:
    """Byte-level BPE with tokens of tool calls that the template does not name."""
    return _renamed("llama", {"<|start_header_id|>": "<|tool_call_start|>", "<|end_header_id|>": "<|tool_call_end|>"})


def sentencepiece() -> tuple[dict[str, Any], dict[str, Any]]:
    """BPE with byte fallback that puts a space before a text and takes it away again, as Mistral has it."""
    content, config = _of_kind("gemma")
    space = {"type": "Prepend", "prepend": "▁"}
    content["normalizer"] = {"type": "Sequence", "normalizers": [space, content["normalizer"]]}
    content["decoder"]["decoders"].append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return content, config


def write(content: dict[str, Any], config: dict[str, Any], folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json into a folder."""
    for name, value in (("tokenizer.json", content), ("tokenizer_config.json", config)):
        (folder / name).write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")


def _trained(kind: str) -> dict[str, Any]:
    return json.loads(json.dumps(_training(kind)))  # a copy to change


@functools.cache
def _training(kind: str) -> dict[str, Any]:
    spec = tiny_tokenizers.KINDS[kind]
    return spec.make(spec.specials, spec.named.get("bos_token"))


def _specials(kind: str) -> list[str]:
    return tiny_tokenizers.KINDS[kind].specials


def _of_kind(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    spec = tiny_tokenizers.KINDS[kind]
    content = _trained(kind)
    for token in content["added_tokens"]:
        token["special"] = token["content"] not in spec.text
    return content, _config(content, spec.template, **spec.named)


def _renamed(kind: str, names: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One of the kinds with other names of special tokens; its template is left out, as it names the old ones."""
    content, config = _of_kind(kind)
    text = json.dumps([content, config], ensure_ascii=False)
    for old, new in names.items():
        text = text.replace(old, new)
    content, config = json.loads(text)
    del config["chat_template"]
    return content, config


def _added(tokens: tuple[str, ...], first: int) -> list[dict[str, Any]]:
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [{"id": first + index, "content": token, **plain, "special": True} for index, token in enumerate(tokens)]


def _config(content: dict[str, Any], template: str, **named: str) -> dict[str, Any]:
    return {
        **named,
        "chat_template": template,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 32768,
        "added_tokens_decoder": {
            str(token["id"]): {key: value for key, value in token.items() if key != "id"}
            for token in content["added_tokens"]
        },
    }
