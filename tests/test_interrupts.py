"""Ctrl-C at the wrong moment: no cache is lost, and the process ends by itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Tiny = Callable[[str], Path]


def interrupted(program: str, *arguments: str, after: float = 0.3) -> tuple[list[str], int, float]:
    """Run a program, send it Ctrl-C some seconds after it prints "ready", and let it end by itself.

    Returns:
        The lines that it printed afterwards, its exit status, and the seconds from the signal to its end.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line == "ready\n", line + process.communicate()[1]
        time.sleep(after)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
        assert "Fatal Python error" not in errors, errors
        return out.splitlines(), process.returncode, time.monotonic() - sent
    finally:
        process.kill()
        process.wait()


PREFILL = """
    import sys, threading, time
    from axlm import generate_step, utils
    from axlm.models.cache import make_prompt_cache
    model, _ = utils.load_model(sys.argv[1])
    prompt = [1 + i % 50 for i in range(int(sys.argv[2]))]
    def work():
        next(generate_step(prompt, model, prefill_step_size=len(prompt)))
"""

WHOLE = (
    PREFILL
    + """
    started = time.monotonic()
    work()
    print(time.monotonic() - started)
"""
)

MAIN_THREAD = (
    PREFILL
    + """
    print("ready", flush=True)
    try:
        work()
    except KeyboardInterrupt:
        print("heard")
"""
)

DAEMON = (
    PREFILL
    + """
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.1)
    print("ready", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("heard")
"""
)

LENGTH = "1500"


@pytest.mark.alone
@pytest.mark.parametrize("program", [MAIN_THREAD, DAEMON], ids=["main thread", "daemon"])
def test_the_process_ends_in_the_middle_of_a_prompt(tiny: Tiny, program: str) -> None:
    folder = str(tiny("qwen3-f32"))
    run = [sys.executable, "-c", textwrap.dedent(WHOLE), folder, LENGTH]
    whole = float(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    lines, status, seconds = interrupted(program, folder, LENGTH)
    print(f"the prompt takes {whole:.1f} s; the process ended {seconds:.1f} s after Ctrl-C")
    assert (lines, status) == (["heard"], 0)
    assert seconds < max(0.6 * whole, 1.5)


LOOK = (
    PREFILL
    + """
    import axlm, mlx_lm
    bits = int(sys.argv[3])
    kv = {"kv_bits": bits, "kv_group_size": 32, "quantized_kv_start": 0} if bits else {}
    first, rest = prompt[:21], prompt[21:]
    def run(generate, model, cache, found):
        list(generate(first, model, max_tokens=1, prompt_cache=cache))
        options = {"max_tokens": 4, "prompt_cache": cache, "prefill_step_size": len(rest), **kv}
        found += [token for token, _ in generate(rest, model, **options)]
    cache, found = make_prompt_cache(model), []
    thread = threading.Thread(target=run, args=(generate_step, model, cache, found))
    thread.start()
    time.sleep(0.7)  # into the long prompt
    print("ready", flush=True)
    heard = 0
    for _ in range(3):
        try:
            offset = cache[0].offset
            break
        except KeyboardInterrupt:
            heard += 1
    thread.join()
    wanted, other = [], make_prompt_cache(model)
    run(generate_step, model, other, wanted)
    print(heard, offset > 0, found == wanted, len(found), cache[0].offset == other[0].offset, type(cache[0]).__name__)
"""
)


@pytest.mark.alone
@pytest.mark.parametrize("bits", [0, 8])
def test_an_interrupted_look_loses_nothing(tiny: Tiny, bits: int) -> None:
    lines, status, _ = interrupted(LOOK, str(tiny("qwen3-f32")), LENGTH, str(bits), after=0.2)
    kind = "QuantizedKVCache" if bits else "KVCache"
    assert status == 0
    assert lines == [f"1 True True 4 True {kind}"]


CHAT = """
    import sys
    from axlm import generate_step, utils
    from axlm.models.cache import make_prompt_cache
    model, _ = utils.load_model(sys.argv[1])
    cache = make_prompt_cache(model, max_kv_size=int(sys.argv[2]))
    read = 0
    print("ready", flush=True)
    try:
        for _ in generate_step([1 + i % 50 for i in range(30)], model, max_tokens=-1, prompt_cache=cache):
            read += 1
    except KeyboardInterrupt:
        pass
    print(cache[0].offset >= 30 + read, cache[0].offset <= 32 + read, read > 64)
    print(len(list(generate_step([5, 6, 7], model, max_tokens=5, prompt_cache=cache))))
"""


@pytest.mark.parametrize("repeat", range(2))
def test_a_bounded_chat_outlives_ctrl_c(tiny: Tiny, repeat: int) -> None:
    lines, status, _ = interrupted(CHAT, str(tiny("qwen3-nano-f32")), "64", after=1 + 0.1 * repeat)
    assert (lines, status) == (["True True True", "5"], 0)


IDLE = (
    PREFILL
    + """
    import gc
    idle, _ = utils.load_model(sys.argv[3])
    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)
    started = time.monotonic()
    del idle
    gc.collect()
    dropped = time.monotonic() - started
    thread.join()
    print(dropped, time.monotonic() - started)
"""
)


@pytest.mark.alone
def test_dropping_an_idle_model_waits_for_nobody(tiny: Tiny) -> None:
    arguments = [str(tiny("qwen3-f32")), LENGTH, str(tiny("qwen3-nano-f32"))]
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(IDLE), *arguments], capture_output=True, text=True, check=True
    ).stdout
    dropped, whole = map(float, out.split())
    assert dropped < whole / 4
