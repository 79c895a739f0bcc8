"""The Go core, as typed functions. Everything here loads it at the first use; importing this module does not."""

from __future__ import annotations

import atexit
import builtins
import importlib.util
import json
import logging
import os
import re
import signal
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _blas, _install
from ._crossing import Crossing
from ._errors import file_error

if TYPE_CHECKING:
    import mlx.core as mx

ZERO_COPY = "AXLM_ZERO_COPY"
"""Environment variable: 0 makes arrays cross as copies, as they do where Python's arrays are laid out otherwise."""

LIBRARY = "AXLM_MLXC"
"""Environment variable: a libmlxc to use in place of the one that was compiled when axlm was installed."""

WAIT_MS = 100
"""The longest stay in the core, hence the longest that Ctrl-C waits to be heard."""

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
_logger = logging.getLogger("axlm")


class _Core(NamedTuple):
    functions: ModuleType  # pybridge's
    bytes_in: Callable[[bytes], Any]  # bytes → the core's []byte
    device: dict[str, Any]  # what init told
    arrays: Crossing


class UnknownFamilyError(ValueError):
    """The core does not have a model's family; the text lists those that it has."""


_ERRORS = {"UnknownFamilyError": UnknownFamilyError}
"""Classes that the core names and that are not Python's own."""

_core: _Core | None = None
_lock = threading.Lock()
_shut_down = False
_started = _forked = False  # Go runs in this process; it ran in the process that this one was forked from


def _after_fork() -> None:
    global _forked, _lock
    _forked = _started or _forked
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def _loaded() -> _Core:
    if _forked:
        raise RuntimeError(
            "axlm was loaded before this process was forked, and its threads do not live on in the child; "
            "start processes with multiprocessing's 'spawn' method, or fork before loading"
        )
    return _core or _load()


def _load() -> _Core:
    global _core, _started
    with _lock:
        if _core is not None:
            return _core
        libmlx, libmlxc = libraries()
        choose_blas()
        _started = True
        try:
            from ._native import axlmgo, go
        except ImportError as error:
            _started = False
            raise ImportError(f"axlm's native part is missing or broken ({error}); install axlm again") from error
        text = call(axlmgo.init, str(libmlx), str(libmlxc))
        atexit.register(_shutdown)
        copies = os.environ.get(ZERO_COPY) == "0"
        arrays = Crossing(axlmgo.array_probe, axlmgo.array_forget, direct=False if copies else None)
        _core = _Core(axlmgo, go.Slice_byte.from_bytes, json.loads(text), arrays)
        if advice := _blas.info()["advice"]:
            _logger.warning("axlm: MLX uses the reference BLAS, which is slow on dense weights; %s", advice)
        return _core


def _shutdown() -> None:
    """End the engine before the libraries under it are torn down. It ends in the middle of a prompt."""
    global _shut_down
    if _core is None or _forked:
        return
    _shut_down = True
    try:
        job_wait(call(_core.functions.shutdown))
    except KeyboardInterrupt:
        # The libraries must not go while the engine works on them: the process ends as one does that was interrupted.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def choose_blas() -> None:
    """Put a fast BLAS in place of MLX's where there is one (Linux, CPU). Once mlx.core is imported it is too late."""
    if (mlx := _find_mlx()) is not None:
        _blas.choose(mlx)


def _find_mlx() -> Path | None:
    """The mlx package's folder, found without importing it."""
    spec = importlib.util.find_spec("mlx")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(folder) / "lib" / f"libmlx.{_SUFFIX}").is_file():
            return Path(folder)
    return None


def libraries() -> tuple[Path, Path]:
    """Return the paths of (libmlx, the library with mlx-c's functions). Nothing is loaded.

    Raises:
        ImportError: one of them is missing, or they do not fit together.
    """
    if (mlx := _find_mlx()) is not None:
        return mlx / "lib" / f"libmlx.{_SUFFIX}", _library(mlx)
    if sys.platform == "darwin":
        raise ImportError(f"MLX is not installed: {_install.command(package='mlx')}")
    raise ImportError(f"MLX has no backend here: {_install.backend()}")


def _library(mlx: Path) -> Path:
    """The library with mlx-c's functions: the user's, or ours if it was compiled for this MLX."""
    if chosen := os.environ.get(LIBRARY):
        if not Path(chosen).is_file():
            raise ImportError(f"{LIBRARY}={chosen}: no such file")
        return Path(chosen).absolute()
    native = Path(__file__).parent / "_native"
    library = native / f"libaxlmmlx.{_SUFFIX}"
    if not library.is_file():
        raise ImportError(f"axlm's native part is not built: no {library}; install axlm with pip")
    # MLX's C++ ABI changes with every release; a library made for another one may crash instead of failing to load.
    built_for = (native / "mlx_version").read_text(encoding="ascii").strip()
    header = mlx / "include" / "mlx" / "version.h"
    if header.is_file():
        numbers = re.findall(r"^#define MLX_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header.read_text("utf-8"), re.M)
        if ".".join(numbers) != built_for:
            raise ImportError(f"axlm was built for MLX {built_for}, but MLX {'.'.join(numbers)} is installed")
    return library


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the core, raising its errors as the Python class that the core names.

    The core's errors arrive as RuntimeErrors whose text is the class's name, the message and, of an error of a file,
    its number and the path, each after a unit separator (0x1F).
    """
    try:
        return function(*arguments)
    except RuntimeError as error:
        kind, separator, message = str(error).partition("\x1f")
        message, of_file, file = message.partition("\x1f")
    if _shut_down and threading.current_thread() is not threading.main_thread():
        raise SystemExit  # the process ends, and a daemon thread still works: it ends without a word
    if not separator:
        kind, message = "RuntimeError", kind
    raised = _ERRORS.get(kind) or getattr(builtins, kind, RuntimeError)
    if not (isinstance(raised, type) and issubclass(raised, Exception)):
        raised = RuntimeError
    if of_file and issubclass(raised, OSError):
        number, _, path = file.partition("\x1f")
        raise file_error(message, path or None, int(number), raised)
    raise raised(message)


def job_wait(job: int) -> None:
    """Wait for a job of the core. Ctrl-C is heard meanwhile, and leaves the job as it is."""
    while not call(_loaded().functions.job_wait, job, WAIT_MS):
        pass


def _numbers(numbers: Sequence[int]) -> Any:
    """Pack numbers, of 64 bits each, as the core takes lists of them."""
    return _loaded().bytes_in(struct.pack(f"={len(numbers)}Q", *numbers))


def _take(job: int, places: Sequence[int] = ()) -> str:
    """End a job that is done and return its result; its arrays are assigned to the C++ arrays at some addresses."""
    return call(_loaded().functions.job_take, job, _numbers(places))


def _taken(job: int) -> str:
    """Wait for a job and return its result. One that is interrupted is given up."""
    try:
        job_wait(job)
        return _take(job)
    except BaseException:  # Ctrl-C, above all
        job_drop(job)
        raise


def job_drop(job: int) -> None:
    """Give a job up: it ends as soon as it can, and leaves nothing behind."""
    call(_loaded().functions.job_drop, job)


def _object(function: Callable[..., str], *arguments: Any) -> dict[str, Any]:
    return json.loads(call(function, *arguments))


def prepare() -> None:
    """Load MLX and the core now. Call it before anything imports mlx.core: a fast BLAS has to be loaded before.

    Raises:
        ImportError: MLX's backend or axlm's native part is not installed, or they do not fit together.
        RuntimeError: this process was forked from one that had loaded the core.
    """
    _loaded()


def device() -> dict[str, Any]:
    """Return what the core computes on.

    Returns:
        ``mlx_version``, ``library`` (the mlx-c in use), ``device`` ("cpu" or "gpu"), ``device_name``, ``memory_size``
        in bytes, and what else MLX knows of the device.
    """
    return dict(_loaded().device)


def blas_info() -> dict[str, Any]:
    """Tell which BLAS MLX uses: ``name``, ``detail`` and ``advice`` (how to get a faster one, or None)."""
    _loaded()
    return _blas.info()


def load_start(path: str, options: dict[str, Any]) -> int:
    """Start to load a model folder. Returns a job for :func:`load_wait`. Options: ``lazy``, ``config``, ``adapter``."""
    return call(_loaded().functions.load_start, path, json.dumps(options))


def load_wait(job: int, wait_ms: int) -> dict[str, Any]:
    """Wait for a load, at most ``wait_ms`` milliseconds.

    Returns:
        ``done`` and ``total`` bytes, ``warming_up``, and ``model``: its handle, 0 until it is loaded.

    Raises:
        FileNotFoundError, ValueError, …: what the load failed with; the job is over then.
    """
    return _object(_loaded().functions.load_wait, job, wait_ms)


def load_cancel(job: int) -> None:
    """Give a load up. One that has ended is left alone."""
    call(_loaded().functions.load_cancel, job)


def manifest(path: str, write: bool) -> dict[str, Any]:
    """Describe a model folder from its headers alone, checking the description that it has.

    Returns:
        ``file`` (its name), ``note`` (why a new one was made, or ""), ``written``, and ``manifest``.

    Raises:
        ValueError, FileNotFoundError: the folder is broken, or its manifest says what is not so.
    """
    return json.loads(_taken(call(_loaded().functions.manifest, path, write)))


def model_info(model: int) -> dict[str, Any]:
    """Return ``model_type``, ``vocab_size``, ``num_layers``, ``path``, ``config``, ``nbytes``, ``eos_token_ids``, …"""
    return _object(_loaded().functions.model_info, model)


def model_free(model: int, wait: bool = True) -> None:
    """Give a model's memory back. Without ``wait`` that happens in its own time."""
    job = call(_loaded().functions.model_free, model)
    if not job:
        return
    if wait:
        _taken(job)
    else:
        job_drop(job)


def parameters(model: int, names: list[str]) -> dict[str, mx.array]:
    """Return a model's weights, evaluated, in memory shared with the core where that works.

    Args:
        model: its handle.
        names: names of parameters of mlx_lm's module.

    Returns:
        The arrays by name, without those that the core does not have.
    """
    core = _loaded()

    def fill(wanted: list[str], addresses: list[int]) -> list[str]:
        job = call(core.functions.parameters, model, json.dumps(wanted))
        try:
            job_wait(job)
            return json.loads(_take(job, addresses))
        except BaseException:
            job_drop(job)
            raise

    return core.arrays.receive_named(names, fill)


def set_dtype(model: int, dtype: str, old: list[str]) -> dict[str, Any]:
    """Cast a model's weights that have one of the old dtypes. Running requests end with a ValueError.

    Returns:
        What :func:`model_info` says afterwards. A change that is interrupted leaves the model as it is.
    """
    return json.loads(_taken(call(_loaded().functions.cast_weights, model, dtype, json.dumps(old))))


def adapt(model: int, path: str) -> dict[str, Any]:
    """Give a model the adapter in a folder in place of the one that it has. Running requests end with a ValueError.

    Returns:
        What :func:`model_info` says afterwards. A change that is interrupted leaves the model as it is.
    """
    return json.loads(_taken(call(_loaded().functions.adapt, model, path)))


def start(model: int, ids: bytes, options: dict[str, Any]) -> int:
    """Start a request.

    Args:
        model: a model's handle.
        ids: the prompt's token ids as native int32 (:func:`axlm._crossing.pack_ids`).
        options: ``max_tokens`` (-1: no limit), ``prefill_step_size``, ``end_tokens``, ``logprobs``, ``ngram``,
            ``sampler``, ``processors``, ``reader_chooses``, ``cache``, ``max_kv_size``, ``kv_bits``,
            ``kv_group_size``, ``quantized_kv_start``, ``embeddings``,
            ``draft_model`` (a handle), ``num_draft_tokens``, ``draft_cache``.

    Returns:
        The request's handle.

    Raises:
        ValueError: no prompt, an id outside the vocabulary, an option's value, a stale handle.
    """
    core = _loaded()
    return call(core.functions.start, model, core.bytes_in(ids), json.dumps(options))


def next(request: int, wait_ms: int) -> int:
    """Wait for a request's next token, at most ``wait_ms`` milliseconds.

    Returns:
        The token, plus 1 << 32 if it came from a draft; -1: none yet; -2: the request is finished.
    """
    return call(_loaded().functions.next, request, wait_ms)


def ask(requests: Sequence[int]) -> None:
    """Let the core work on the next tokens of some requests at once, without waiting for them."""
    call(_loaded().functions.ask, _numbers(requests))


def set_kv_bytes(limit: int) -> None:
    """Bound what requests' caches take together, in bytes; 0 leaves it to the core."""
    call(_loaded().functions.set_kv_bytes, limit)


def fill(requests: Sequence[int], counts: Sequence[int]) -> None:
    """Let the core process some requests' prompts at once, each up to so many tokens, without waiting for them."""
    call(_loaded().functions.fill, _numbers(requests), _numbers(counts))


def fill_prompt(request: int, count: int, wait_ms: int) -> int:
    """Process a request's prompt up to ``count`` tokens, and wait for that, at most ``wait_ms`` milliseconds.

    Returns:
        How many prompt tokens are processed.
    """
    return call(_loaded().functions.fill_prompt, request, count, wait_ms)


def progress(request: int) -> tuple[int, int]:
    """Return (prompt tokens processed, prompt tokens)."""
    packed = call(_loaded().functions.progress, request)
    return packed >> 32, packed & 0xFFFFFFFF


def logprobs(request: int) -> mx.array:
    """Return the log probabilities [V] at the last token from :func:`next`, in the model's dtype, evaluated."""
    core = _loaded()
    return core.arrays.receive(lambda address: call(core.functions.logprobs, request, address))


def choose(request: int, token: int) -> None:
    """Continue a request started with ``reader_chooses``; its :func:`logprobs` are logits."""
    call(_loaded().functions.choose, request, token)


def reseed(request: int, key: int) -> None:
    """Make ``key`` (two 32-bit words, the high one first) the state of the request's random generator."""
    call(_loaded().functions.reseed, request, key)


def key_after(request: int) -> int:
    """Return where plain decoding has the random generator when it yields the last token: one draw ahead."""
    return call(_loaded().functions.key_after, request)


def close(request: int) -> None:
    """End a request and free what it holds. Closing it again is harmless."""
    call(_loaded().functions.close, request)


def keep_prefixes(model: int, limit: int) -> None:
    """Let a model keep states of prompts and answers, in so many bytes; 0 for none."""
    call(_loaded().functions.keep_prefixes, model, limit)


def stats(model: int) -> dict[str, Any]:
    """Return a model's counters."""
    return json.loads(_taken(call(_loaded().functions.stats, model)))


def request_stats(request: int) -> dict[str, Any]:
    """Return a request's counters."""
    return json.loads(_taken(call(_loaded().functions.request_stats, request)))


def forward(model: int, ids: bytes, batch: int, cache: int = 0, embeddings: int = 0) -> mx.array:
    """Run a model over whole sequences.

    Args:
        model: its handle.
        ids: token ids [batch, L] as native int32, row after row.
        batch: the number of sequences.
        cache: a prompt cache's handle, for what comes before, 0 for none.
        embeddings: the handle of an array [batch, L, dim] in place of the ids' embeddings, given up; 0 for none.

    Returns:
        Logits [batch, L, V] in the model's dtype, evaluated.
    """
    core = _loaded()
    options = json.dumps({"cache": cache, "embeddings": embeddings})
    job = call(core.functions.forward, model, core.bytes_in(ids), batch, options)
    try:
        job_wait(job)
        return core.arrays.receive(lambda place: _take(job, [place]))
    except BaseException:  # Ctrl-C, above all
        job_drop(job)
        raise


def array_in(array: mx.array) -> int:
    """Hand an evaluated array to the core, in shared memory where that works. Returns a handle, to be given up."""
    core = _loaded()
    return core.arrays.send(
        array,
        lambda address: call(core.functions.array_in, address),
        lambda data, form: int(_taken(call(core.functions.array_copy, core.bytes_in(data), json.dumps(form)))),
    )


def array_out(handle: int) -> mx.array:
    """Take an evaluated array from the core, giving up its handle."""
    core = _loaded()
    return core.arrays.receive(lambda address: call(core.functions.array_out, handle, address))


def array_free(handle: int) -> None:
    """Give up an array's handle."""
    call(_loaded().functions.array_free, handle)


def cache_new(model: int, layers: list[dict[str, Any]]) -> int:
    """Begin to make a prompt cache of its layers' states; the arrays' handles are given up in any case.

    Returns a job for :func:`job_wait`, whose :func:`job_number` is the cache's handle.

    Args:
        model: the model's handle.
        layers: for each layer ``kind`` (a class of mlx_lm's), ``arrays`` (handles), ``offset``; of rotating ones
            ``keep``, ``max_size``, ``next``; of quantised ones ``group_size``, ``bits``.
    """
    return call(_loaded().functions.cache_new, model, json.dumps(layers))


def job_number(job: int) -> int:
    """End a job that is done. Returns the handle that it made."""
    return int(_take(job))


def cache_take(cache: int) -> int:
    """Begin to end a prompt cache. Returns a job for :func:`job_wait` and :func:`cache_layers`."""
    return call(_loaded().functions.cache_take, cache)


def cache_layers(job: int) -> list[dict[str, Any]]:
    """End a job that took a prompt cache and is done. Returns the cache's layers, as :func:`cache_new` takes them.

    Raises:
        RuntimeError, ValueError: the state is lost.
    """
    return json.loads(_take(job))


def cache_free(cache: int) -> None:
    """Free a prompt cache. Freeing it again is harmless."""
    call(_loaded().functions.cache_free, cache)


def resume(request: int, cache: int) -> None:
    """Continue a request whose prompt cache was taken with another."""
    call(_loaded().functions.resume, request, cache)


def resume_draft(request: int, cache: int) -> None:
    """Give a request's draft model a prompt cache in place of the one that was taken."""
    call(_loaded().functions.resume_draft, request, cache)


def pack_start(source: str, target: str) -> int:
    """Start to compress a file with zstd. Returns a job for :func:`pack_wait`."""
    return call(_loaded().functions.pack_start, source, target)


def unpack_start(source: str, target: str, limit: int) -> int:
    """Start to unpack a prompt cache into a new file of at most ``limit`` bytes. Returns a job."""
    return call(_loaded().functions.unpack_start, source, target, limit)


def pack_wait(job: int, wait_ms: int) -> dict[str, Any]:
    """Wait for packing or unpacking, at most ``wait_ms`` milliseconds.

    Returns:
        ``done`` and ``total`` bytes of the content, ``ended``, and with the end ``sizes``: ``content`` and ``packed``.

    Raises:
        FileNotFoundError, OSError, ValueError: what the job failed with; it is over then.
    """
    return _object(_loaded().functions.pack_wait, job, wait_ms)


def pack_cancel(job: int) -> None:
    """Give a job up, and remove what it had written. One that has ended is left alone."""
    call(_loaded().functions.pack_cancel, job)


def cache_file_sizes(path: str, packed: bool) -> dict[str, int]:
    """Check the headers of a prompt cache file, ``packed`` with zstd or plain.

    Returns:
        ``content`` and ``packed`` bytes.

    Raises:
        FileNotFoundError, OSError, ValueError: there is none, or it is damaged, truncated or of another kind.
    """
    return _object(_loaded().functions.cache_file_sizes, path, packed)


def memory() -> dict[str, int]:
    """Return MLX's memory in bytes: ``active``, ``peak``, ``cache``."""
    return _object(_loaded().functions.memory)


def peak_memory() -> int:
    """Return the most bytes in use so far."""
    return call(_loaded().functions.peak_memory)


def reset_peak() -> None:
    """Let the peak of :func:`memory` start anew."""
    call(_loaded().functions.reset_peak)


def clear_cache() -> None:
    """Give MLX's unused buffers back to the system."""
    call(_loaded().functions.clear_cache)


def set_wired_limit(limit: int) -> int:
    """Set how many bytes MLX may keep wired (Metal only). Returns the limit before."""
    return call(_loaded().functions.set_wired_limit, limit)
