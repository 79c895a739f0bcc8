"""Threads, interrupts, forks and closed generators, with the real core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import axlm
import pytest
from batches import at_once
from oracle import generated, ours

Tiny = Callable[[str], Path]


# Threads


def test_one_thread_loads_another_generates(tiny: Tiny) -> None:
    box: dict[str, Any] = {}

    def run(function: Callable[[], Any]) -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    run(lambda: box.update(model=axlm.load(tiny("qwen3-f32"))[0]))
    run(lambda: box.update(ids=generated(box["model"], [1, 2, 3], 32)))
    assert box["ids"] == generated(box["model"], [1, 2, 3], 32)
    box["model"].close()


def test_threads_get_what_they_would_get_alone(tiny: Tiny) -> None:
    """Two models, four requests at once, of unlike lengths."""
    first, second = ours(tiny("qwen3-f32"))[0], ours(tiny("llama-f32"))[0]
    jobs = [(first, [5] * 40, 60), (first, [9, 8, 7], 90), (second, [3] * 200, 40), (second, [4, 4], 80)]
    alone = [generated(model, ids, count, prefill_step_size=16) for model, ids, count in jobs]
    assert at_once(partial(generated, *job, prefill_step_size=16) for job in jobs) == alone


def test_generators_take_turns(tiny: Tiny) -> None:
    model, _ = ours(tiny("qwen3-f32"))
    prompts = ([1, 2, 3], [7] * 30)
    alone = [generated(model, ids, 20) for ids in prompts]
    streams = [axlm.generate_step(ids, model, max_tokens=20) for ids in prompts]
    pairs = [tuple(token for token, _ in both) for both in zip(*streams, strict=True)]
    assert [list(ids) for ids in zip(*pairs, strict=True)] == alone


def test_logprobs_made_in_one_thread_are_used_in_another(tiny: Tiny) -> None:
    import mlx.core as mx

    model, _ = ours(tiny("qwen3-f32"))
    kept: list[Any] = []
    thread = threading.Thread(target=lambda: kept.extend(axlm.generate_step([1, 2, 3], model, max_tokens=5)))
    thread.start()
    thread.join()
    assert [int(mx.argmax(logprobs * 2).item()) for _, logprobs in kept] == [token for token, _ in kept]


# Ends


def test_a_closed_generator_frees_its_request_after_any_token(tiny: Tiny) -> None:
    model, tokenizer = ours(tiny("qwen3-f32"))
    expected = generated(model, [1, 2, 3], 12)
    for count in range(1, 13):
        stream = axlm.stream_generate(model, tokenizer, [1, 2, 3], max_tokens=12)
        assert [next(stream).token for _ in range(count)] == expected[:count]
        stream.close()
    assert generated(model, [1, 2, 3], 12) == expected


def test_closing_a_model_ends_what_runs_on_it(tiny: Tiny) -> None:
    model, _ = axlm.load(tiny("qwen3-nano-f32"))
    stream = axlm.generate_step([1, 2, 3], model, max_tokens=-1)
    next(stream)
    model.close()
    with pytest.raises(ValueError, match="closed"):
        for _ in range(5):  # what was ready before may still come
            next(stream)
    with pytest.raises(ValueError, match="closed"):
        next(axlm.generate_step([1, 2, 3], model))


def test_closing_a_model_while_another_thread_generates(tiny: Tiny) -> None:
    model, _ = axlm.load(tiny("qwen3-nano-f32"))
    started = threading.Event()
    caught: list[BaseException] = []

    def work() -> None:
        try:
            for _ in axlm.generate_step([1, 2, 3], model, max_tokens=-1):
                started.set()
        except ValueError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(10)
    model.close()
    thread.join(10)
    assert not thread.is_alive() and "closed" in str(caught[0])


# Interrupts


def child(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


INTERRUPTED = """
    import sys, time
    import axlm
    from axlm import utils
    folder, length, step = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    model, _ = utils.load_model(folder)
    print("ready", flush=True)
    try:
        for _ in axlm.generate_step([1 + i % 50 for i in range(length)], model, max_tokens=-1, prefill_step_size=step):
            pass
    except KeyboardInterrupt:
        print(time.time(), flush=True)
    started = time.time()
    count = len(list(axlm.generate_step([1, 2, 3], model, max_tokens=3)))
    print(count, time.time() - started, flush=True)
"""


@pytest.mark.alone
@pytest.mark.parametrize(
    ("what", "length", "step"),
    [("one long evaluation", 1500, 4096), ("many short ones", 6000, 32), ("decoding", 3, 2048)],
)
def test_ctrl_c_is_heard_within_200_ms(tiny: Tiny, what: str, length: int, step: int) -> None:
    process = child(INTERRUPTED, str(tiny("qwen3-f32")), str(length), str(step))
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)  # into the prefill, or the decoding
        sent = time.time()
        process.send_signal(signal.SIGINT)
        heard = float(process.stdout.readline()) - sent
        print(f"{what}: heard after {heard * 1000:.0f} ms")
        assert heard <= 0.2
        # The core drops the request when its running evaluation ends; then the next one runs.
        count, seconds = process.stdout.readline().split()
        assert count == "3"
        if what != "one long evaluation":
            assert float(seconds) < 2
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


WAITING = """
    import sys, threading, time
    from axlm import generate_step, utils
    model, _ = utils.load_model(sys.argv[1])
    prompt = [1 + i % 50 for i in range(int(sys.argv[2]))]
    work = lambda: next(generate_step(prompt, model, prefill_step_size=len(prompt)))
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.3)
    print("ready", flush=True)
    try:
        next(generate_step([1, 2, 3], model))
        print("too fast to interrupt", flush=True)
    except KeyboardInterrupt:
        print(time.time(), flush=True)
"""


def check_interrupt(program: str, tiny: Tiny, length: int, *lines: str) -> None:
    """Demand that a program hears Ctrl-C within 200 ms, what it prints then, and that it can end."""
    process = child(program, str(tiny("qwen3-f32")), str(length))
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        sent = time.time()
        process.send_signal(signal.SIGINT)
        assert float(process.stdout.readline()) - sent <= 0.2
        for line in lines:
            assert process.stdout.readline() == line
        assert process.wait(30) == 0  # it does not wait for what still runs
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.alone
def test_ctrl_c_is_heard_while_another_request_is_evaluated(tiny: Tiny) -> None:
    check_interrupt(WAITING, tiny, 3000)


CALLING = """
    import sys, time
    import mlx.core as mx
    from axlm import utils
    model, _ = utils.load_model(sys.argv[1])
    tokens = mx.array([[1 + i % 50 for i in range(int(sys.argv[2]))]])
    print("ready", flush=True)
    try:
        model(tokens)
        print("too fast to interrupt", flush=True)
    except KeyboardInterrupt:
        print(time.time(), flush=True)
    print(model(tokens[:, :3]).shape[1], flush=True)
"""


@pytest.mark.alone
def test_ctrl_c_is_heard_while_the_model_is_called(tiny: Tiny) -> None:
    check_interrupt(CALLING, tiny, 1800, "3\n")


# Forks


FORKED = """
    import multiprocessing, os, sys
    from axlm import generate_step, utils
    model, _ = utils.load_model(sys.argv[1])
    stream = generate_step([1, 2, 3], model, max_tokens=5)
    next(stream)
    child = os.fork()
    if child == 0:
        try:
            next(generate_step([1, 2, 3], model))
        except RuntimeError as error:
            print("spawn" in str(error), flush=True)
        stream.close()
        del stream, model
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    print(len(list(stream)), flush=True)
"""


def test_a_forked_child_gets_a_clear_error_and_the_parent_goes_on(tiny: Tiny) -> None:
    process = child(FORKED, str(tiny("qwen3-nano-f32")))
    out, _ = process.communicate(timeout=60)
    assert out.splitlines() == ["True", "4"] and process.returncode == 0


SPAWNED = """
import multiprocessing, sys
from axlm import generate_step, utils

def count(folder):
    model, _ = utils.load_model(folder)
    return len(list(generate_step([1, 2, 3], model, max_tokens=5)))

if __name__ == "__main__":
    count(sys.argv[1])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(count, [sys.argv[1]]))
"""


def test_a_spawned_child_works(tiny: Tiny, tmp_path: Path) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    words = [sys.executable, str(script), str(tiny("qwen3-nano-f32"))]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "[5]\n"


def test_a_process_ends_while_a_generator_is_open(tiny: Tiny) -> None:
    code = """
        import sys
        from axlm import generate_step, utils
        model, _ = utils.load_model(sys.argv[1])
        stream = generate_step([1, 2, 3], model, max_tokens=-1)
        print(type(next(stream)[0]).__name__)
    """
    process = child(code, str(tiny("qwen3-nano-f32")))
    out, _ = process.communicate(timeout=30)
    assert out == "int\n" and process.returncode == 0


def test_a_daemon_thread_that_generates_ends_quietly(tiny: Callable[[str], Path]) -> None:
    code = f"""
import threading, time
from axlm import generate_step, load
model, _ = load({str(tiny("qwen3-nano-f32"))!r})
def read():
    for _ in generate_step([1, 2], model, max_tokens=-1):
        pass
threading.Thread(target=read, daemon=True).start()
time.sleep(0.3)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
