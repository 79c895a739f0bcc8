"""The suite's prompts. Their texts are our own, or functions of the running Python's standard library."""

from __future__ import annotations

import ast
import importlib.resources
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Prompt:
    """One conversation that the model shall continue.

    Attributes:
        name: unique in the suite.
        cls: the class, one of :data:`CLASSES`.
        messages: ``{"role": "user" or "assistant", "content": …}``, in turns, the user's first and last.
    """

    name: str
    cls: str
    messages: tuple[dict[str, str], ...]


def load_prompts(classes: Iterable[str] | None = None, per_class: int | None = None) -> list[Prompt]:
    """Return the suite's prompts, in the same order and with the same texts every time.

    The texts out of the standard library may differ between versions of Python.

    Args:
        classes: which of :data:`CLASSES` to return; all by default.
        per_class: how many prompts of each class to return; all by default.

    Raises:
        ValueError: an unknown class.
    """
    wanted = CLASSES if classes is None else tuple(classes)
    if unknown := [name for name in wanted if name not in CLASSES]:
        raise ValueError(f"no class {unknown[0]!r}; there are {', '.join(CLASSES)}")
    prompts = []
    for cls in CLASSES:
        if cls in wanted:
            for name, messages in list(_MAKERS[cls]().items())[:per_class]:
                prompts.append(Prompt(f"{cls}/{name}", cls, tuple(messages)))
    return prompts


Messages = list[dict[str, str]]


def _text(file: str) -> str:
    return (importlib.resources.files(__package__) / "texts" / file).read_text(encoding="utf-8")


def _ask(request: str, text: str = "", language: str | None = None) -> Messages:
    """One message of the user: the request, then the text it is about, fenced if it is in a computer's language."""
    if text:
        text = text.strip("\n")
        request += f"\n\n```{language}\n{text}\n```" if language is not None else f"\n\n{text}"
    return [{"role": "user", "content": request}]


def _stdlib(module: str, *functions: str) -> str:
    """The source of some functions of a module of Python's own, with their comments; nothing is imported."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ImportError(f"Python's module {module} has no source file here")
    source = Path(spec.origin).read_text(encoding="utf-8")
    lines = source.splitlines()
    parts = {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }
    return "\n\n\n".join(parts[name] for name in functions)


def _copy_edit() -> dict[str, Messages]:
    whole = "Return the whole file, with everything else unchanged."
    return {
        "inventory": _ask(
            f"In this file, give the method `remove` a docstring that says what it raises. {whole}",
            _text("inventory.py.txt"),
            "python",
        ),
        "ratelimit": _ask(
            f"Change the default of `period` from 1.0 to 60.0 and rename nothing. {whole}",
            _text("ratelimit.py.txt"),
            "python",
        ),
        "service": _ask(
            f"Set the port to 9090, the number of workers to 8 and the log level to debug. {whole}",
            _text("service.toml.txt"),
            "toml",
        ),
        "colours": _ask(
            f"Add type hints to both functions: all values are floats. {whole}",
            _stdlib("colorsys", "rgb_to_hls", "hls_to_rgb"),
            "python",
        ),
    }


def _rename() -> dict[str, Messages]:
    return {
        "ledger": _ask(
            "Rename the class `Ledger` to `CashBook` and the method `record` to `book`, everywhere they are used, and "
            "print the complete code.",
            _text("ledger.py.txt"),
            "python",
        ),
        "workqueue": _ask(
            "Rename the type `Queue` to `WorkQueue` and its field `tasks` to `pending`, comments included, and print "
            "the complete file.",
            _text("workqueue.go.txt"),
            "go",
        ),
        "bisect": _ask(
            "Rename the parameters `a` to `values`, `lo` to `low` and `hi` to `high` in both functions and print them "
            "completely.",
            _stdlib("bisect", "insort_left", "bisect_left"),
            "python",
        ),
    }


def _json_reformat() -> dict[str, Messages]:
    return {
        "orders": _ask(
            "Print this JSON again with two spaces of indentation and with all keys in camelCase instead of "
            "snake_case. Keep every value.",
            _text("orders.json"),
            "json",
        ),
        "stations": _ask(
            "Turn this table into a JSON list of objects, one a line. Numbers become numbers, and yes and no become "
            "true and false.",
            _text("stations.csv.txt"),
            "csv",
        ),
        "people": _ask("Convert this YAML into JSON, indented by two spaces.", _text("people.yaml.txt"), "yaml"),
    }


def _tool_calls() -> dict[str, Messages]:
    rules = (
        "You can call these functions. Answer with a JSON list of calls and nothing else; a call is "
        '{"name": ..., "arguments": {...}}.\n\n' + _text("tools.json").strip()
    )
    return {
        "trip": _ask(
            f"{rules}\n\nFly me from BER to LIS on 2026-05-14 and back on 2026-05-18, each way for 180 euros at most, "
            "and book a room in Lisbon for those nights, for two, with breakfast."
        ),
        "meeting": _ask(
            f"{rules}\n\nPlan the review of the spring catalogue for 2026-04-09 from 10:00 to 11:30 with "
            "vera@example.com, samir@example.com and lotte@example.com, and send each of them a message with the "
            "subject 'Review of the spring catalogue' that asks for their pages two days before."
        ),
        "hotels": _ask(
            f"{rules}\n\nBook rooms for our tour, one guest, no breakfast: Graz from 2026-06-01 to 2026-06-03, "
            "Ljubljana from 2026-06-03 to 2026-06-06, Trieste from 2026-06-06 to 2026-06-07, Venice from 2026-06-07 "
            "to 2026-06-10."
        ),
    }


def _agent_session() -> dict[str, Messages]:
    return {name: _transcript(_text(f"agent_{name}.txt")) for name in ("slug", "config", "sql")}


def _transcript(text: str) -> Messages:
    """Read messages that begin with lines such as ``=== user``."""
    messages: Messages = []
    for part in text.split("=== ")[1:]:
        role, _, content = part.partition("\n")
        messages.append({"role": role, "content": content.strip("\n")})
    return messages


def _summarise_with_quotes() -> dict[str, Messages]:
    request = (
        "Summarise this text in five points. After each point quote the sentence of the text that it rests on, word "
        "for word and in quotation marks."
    )
    return {name: _ask(request, _text(f"{name}.txt")) for name in ("lighthouse", "minutes", "battery")}


def _translation() -> dict[str, Messages]:
    return {
        f"{name}-{language.lower()}": _ask(f"Translate this text into {language}.", _text(f"{name}.txt"))
        for name, language in (("harbour", "French"), ("notice", "German"), ("recipe", "Spanish"))
    }


def _open_chat() -> dict[str, Messages]:
    return {
        "moving": _ask("I moved to a new city and know nobody. How do I find friends as an adult who works all day?"),
        "tides": _ask("Why are there two high tides a day and not one, if there is only one moon?"),
        "interview": [
            *_ask("I have a job interview tomorrow at a small company that repairs bicycles. What will they ask?"),
            {
                "role": "assistant",
                "content": "They will want to hear what you have repaired so far, how you deal with customers who are "
                "in a hurry, and whether you can work on Saturdays.",
            },
            *_ask("I have never worked with customers. What do I say to that?"),
        ],
    }


def _story() -> dict[str, Messages]:
    return {
        "clockmaker": _ask("Tell a story about a clockmaker who finds an hour that nobody has used."),
        "train": _ask("Write the beginning of a novel that is set on a night train through the mountains in winter."),
        "fox": _ask("Write a bedtime story for a child of four, about a fox that is afraid of the dark."),
    }


def _code_from_scratch() -> dict[str, Messages]:
    return {
        "lru": _ask("Write a Python class for a cache that forgets the entry unused for longest, with tests."),
        "wordcount": _ask(
            "Write a command line program in Python that prints the twenty most frequent words of the files it is "
            "given, without counting stop words."
        ),
        "life": _ask("Write Conway's Game of Life in JavaScript, drawn on a canvas, with a button that pauses it."),
    }


_MAKERS: dict[str, Callable[[], dict[str, Messages]]] = {
    "copy_edit": _copy_edit,
    "rename": _rename,
    "json_reformat": _json_reformat,
    "tool_calls": _tool_calls,
    "agent_session": _agent_session,
    "summarise_with_quotes": _summarise_with_quotes,
    "translation": _translation,
    "open_chat": _open_chat,
    "story": _story,
    "code_from_scratch": _code_from_scratch,
}

CLASSES = tuple(_MAKERS)
"""The classes, from those whose answers repeat their prompts to those that do not."""
