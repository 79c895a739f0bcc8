"""The core's exported functions in pure Python, so that the face is tested without MLX, a model or a build.

A model continues every prompt with the tokens of ``script``, over and over. Errors look as the core's do.
"""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axlm import _bridge
from axlm.model import Model

VOCABULARY = 100
PEAK = 2_500_000_000
SCRIPT = (5, 6, 7, 8, 9)


def core_error(kind: str, message: str) -> RuntimeError:
    """An error as the core raises it."""
    return RuntimeError(f"{kind}\x1f{message}")


@dataclass
class FakeRequest:
    """A request's state; ``waits`` is how often ``next`` finds nothing before the first token."""

    ids: list[int]
    options: dict[str, Any]
    waits: int
    given: int = 0
    over: bool = False


@dataclass
class FakeNative:
    """The functions of ``axlm._native.axlmgo``.

    Attributes:
        script: the tokens that a model generates.
        waits: how often a request's ``next`` finds nothing at first; the prefill advances evenly meanwhile.
        pause: seconds that each such wait takes.
        drafted: indices of tokens that come from a draft.
        fail_at: index of the token in whose place an error comes.
        load_error: what loads fail with.
        load_waits: how often ``load_wait`` finds nothing at first.
        requests: by handle, also those that were closed.
        open: handles of requests that are not closed.
        models: handles of models that are not freed.
    """

    script: tuple[int, ...] = SCRIPT
    waits: int = 0
    pause: float = 0.0
    drafted: frozenset[int] = frozenset()
    fail_at: int | None = None
    load_error: RuntimeError | None = None
    load_waits: int = 0
    info: dict[str, Any] = field(default_factory=dict)
    requests: dict[int, FakeRequest] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    models: set[int] = field(default_factory=set)
    loads: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    on_next: Callable[[int], None] | None = None
    _handles: int = 0
    _pending_loads: dict[int, int] = field(default_factory=dict)
    _jobs: dict[int, str] = field(default_factory=dict)

    def _handle(self) -> int:
        self._handles += 1
        return self._handles

    def version(self) -> str:
        return "0.0"

    def load_start(self, path: str, options: str) -> int:
        self.loads.append((path, json.loads(options)))
        job = self._handle()
        self._pending_loads[job] = self.load_waits
        return job

    def load_wait(self, job: int, wait_ms: int) -> str:
        if job not in self._pending_loads:
            raise core_error("ValueError", "the load is closed")
        if self._pending_loads[job] > 0:
            self._pending_loads[job] -= 1
            time.sleep(self.pause)
            return json.dumps({"done": 10, "total": 100, "model": 0})
        del self._pending_loads[job]
        if self.load_error is not None:
            raise self.load_error
        return json.dumps({"done": 100, "total": 100, "model": self.add_model()})

    def load_cancel(self, job: int) -> int:
        self._pending_loads.pop(job, None)
        return 0

    def add_model(self) -> int:
        model = self._handle()
        self.models.add(model)
        return model

    def model_info(self, model: int) -> str:
        self._check_model(model)
        return json.dumps({"model_type": "llama", "vocab_size": VOCABULARY, "nbytes": 98_000_000, **self.info})

    def _check_model(self, model: int) -> None:
        if model not in self.models:
            raise core_error("ValueError", "the model is closed")

    def _job(self, result: str = "") -> int:
        """A job that is done."""
        job = self._handle()
        self._jobs[job] = result
        return job

    def job_wait(self, job: int, wait_ms: int) -> int:
        if job not in self._jobs:
            raise core_error("ValueError", "the job is closed")
        return 1

    def job_take(self, job: int, addresses: bytes) -> str:
        return self._jobs.pop(job)

    def job_drop(self, job: int) -> int:
        self._jobs.pop(job, None)
        return 0

    def model_free(self, model: int) -> int:
        self.models.discard(model)
        return self._job()

    def start(self, model: int, ids: bytes, options: str) -> int:
        self._check_model(model)
        values = list(struct.unpack(f"<{len(ids) // 4}i", ids))
        if worst := [value for value in values if value >= VOCABULARY]:
            raise core_error("ValueError", f"token id {worst[0]} is outside the vocabulary of {VOCABULARY}")
        request = self._handle()
        self.requests[request] = FakeRequest(values, json.loads(options), self.waits)
        self.open.add(request)
        return request

    def next(self, request: int, wait_ms: int) -> int:
        if request not in self.open:
            raise core_error("ValueError", "the request is closed")
        if self.on_next is not None:
            self.on_next(request)
        state = self.requests[request]
        if state.waits > 0:
            state.waits -= 1
            time.sleep(self.pause)
            return -1
        if state.over or state.given == state.options["max_tokens"]:
            return -2
        if state.given == self.fail_at:
            raise core_error("MemoryError", "out of memory in token")
        token = self.script[state.given % len(self.script)]
        from_draft = state.given in self.drafted
        state.given += 1
        state.over = token in state.options["end_tokens"]
        return token + (from_draft << 32)

    def progress(self, request: int) -> int:
        state = self.requests[request]
        total = len(state.ids)
        done = total if state.given else (total - 1) * (self.waits - state.waits) // max(self.waits, 1)
        return done << 32 | total

    def logprobs(self, request: int, address: int) -> int:
        if not self.requests[request].options["logprobs"]:
            raise core_error("ValueError", "the request keeps no log probabilities")
        return request

    def close(self, request: int) -> None:
        self.open.discard(request)

    def stats(self, model: int) -> int:
        self._check_model(model)
        return self._job(json.dumps({"generated_tokens": sum(request.given for request in self.requests.values())}))

    def request_stats(self, request: int) -> int:
        if request not in self.open:
            raise core_error("ValueError", "the request is closed")
        return self._job(json.dumps({"generated_tokens": self.requests[request].given}))

    def forward(self, model: int, ids: bytes, batch: int, options: str) -> int:
        self._check_model(model)
        return self._job(str(len(ids) // 4 // batch))

    def memory(self) -> str:
        return json.dumps({"active": 1_000_000, "peak": PEAK, "cache": 0})

    def peak_memory(self) -> int:
        return PEAK

    def reset_peak(self) -> None:
        pass


class FakeCrossing:
    """Gives, in place of an array, what the core's function returned."""

    def receive(self, fill: Callable[[int], int | str]) -> tuple[str, int]:
        return "array", int(fill(0))


def fake_core(monkeypatch: pytest.MonkeyPatch) -> FakeNative:
    """A fake core in place of the real one. Test modules make it a fixture: ``native = pytest.fixture(fake_core)``."""
    fake = FakeNative()
    device = {"mlx_version": "0", "library": "none", "device": "cpu", "device_name": "fake", "memory_size": 10**9}
    monkeypatch.setattr(_bridge, "_core", _bridge._Core(fake, bytes, device, FakeCrossing()))
    return fake


def fake_model(native: FakeNative, tmp_path: Path) -> Iterator[Model]:
    """A model of the fake core."""
    model = Model(native.add_model(), tmp_path, {"model_type": "llama", "torch_dtype": "float32"})
    yield model
    model.close()


class Detokenizer:
    """Writes token 7 as ``<7>`` and holds every multiple of 3 back until the next token."""

    def __init__(self) -> None:
        self._held = self._segment = ""

    def add_token(self, token: int) -> None:
        self._held += f"<{token}>"
        if token % 3:
            self._flush()

    def finalize(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._segment += self._held
        self._held = ""

    @property
    def last_segment(self) -> str:
        segment, self._segment = self._segment, ""
        return segment


class Tokenizer:
    """A tokenizer whose ids are letters' places in the alphabet, with 1 for the BOS token ``^``."""

    bos_token: str | None = "^"
    has_chat_template = True

    def __init__(self, *end_tokens: int) -> None:
        self.eos_token_ids = set(end_tokens)
        self.messages: list[dict[str, str]] = []
        self.template_options: dict[str, Any] = {}

    @property
    def detokenizer(self) -> Detokenizer:
        return Detokenizer()

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [1] * add_special_tokens + [1 if letter == "^" else ord(letter) % 32 + 1 for letter in text]

    def add_eos_token(self, token: str) -> None:
        self.eos_token_ids.add(int(token))

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        self.messages = messages
        self.template_options = options
        return "^" + "".join(message["content"] for message in messages)
