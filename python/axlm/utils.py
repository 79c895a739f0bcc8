"""Loading: from a name to a model and its tokenizer."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _bridge
from ._bridge import WAIT_MS
from ._progress import Bar
from .model import Model, model_maker

if TYPE_CHECKING:
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from typing_extensions import Self

T = TypeVar("T")

_logger = logging.getLogger("axlm")

_PATIENCE_MS = 3000
"""How long warming up may take before the user is told what the wait is."""

_REPO_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def load(
    path_or_hf_repo: str | os.PathLike[str],
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    return_config: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[Model, TokenizerWrapper] | tuple[Model, TokenizerWrapper, dict[str, Any]]:
    """Load a model and its tokenizer.

    Args:
        path_or_hf_repo: an MLX model folder, ``smollm2-135m`` (needs no hub), or the name of a Hugging Face repository,
            which is downloaded.
        tokenizer_config: further arguments for the tokenizer.
        model_config: entries that override ``config.json``'s.
        adapter_path: a folder that mlx_lm's tuner wrote (``adapter_config.json``, ``adapters.safetensors``). LoRA and
            DoRA are applied beside the weights, full fine-tuning in their place.
        lazy: read weights when they are first needed.
        return_config: return the model's configuration as well.
        revision: a branch, tag or commit of the repository.
        trust_remote_code: allow a repository's own Python code for its model.

    Returns:
        (model, tokenizer), and the configuration if asked for.

    Raises:
        FileNotFoundError: no such folder, no ``config.json`` or weights in it, or a repository that cannot be had; no
            such adapter, or a file of it is missing.
        ValueError: an unknown model family (the text lists those known), weights that do not fit the configuration, or
            an adapter that does not fit the model.
        KeyError: the adapter's configuration has no scale or rank.
        NotImplementedError: an argument that is not supported yet.
    """
    folder = resolve(path_or_hf_repo, revision)
    _bridge.prepare()  # before mlx_lm, which imports mlx.core

    def make_tokenizer(config: dict[str, Any]) -> TokenizerWrapper:
        from mlx_lm.utils import load_tokenizer

        return load_tokenizer(folder, tokenizer_config, eos_token_ids=config.get("eos_token_id"))

    model, tokenizer = _load(folder, lazy, model_config, trust_remote_code, make_tokenizer, adapter_path)
    return (model, tokenizer, model.config) if return_config else (model, tokenizer)


def load_model(
    model_path: str | os.PathLike[str],
    lazy: bool = False,
    *,
    model_config: dict[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> tuple[Model, dict[str, Any]]:
    """Load a model from a local folder, without a tokenizer.

    Args:
        model_path: an MLX model folder.
        lazy: read weights when they are first needed.
        model_config: as for :func:`load`.
        trust_remote_code: as for :func:`load`.

    Returns:
        (model, configuration).

    Raises:
        FileNotFoundError, ValueError, NotImplementedError: as :func:`load`.
    """
    _bridge.prepare()
    model, _ = _load(Path(model_path), lazy, model_config, trust_remote_code, lambda _: None)
    return model, model.config


def resolve(path_or_hf_repo: str | os.PathLike[str], revision: str | None = None) -> Path:
    """Find a model's folder, downloading or converting it where needed.

    Args:
        path_or_hf_repo: as for :func:`load`.
        revision: as for :func:`load`.

    Returns:
        The folder.

    Raises:
        FileNotFoundError: neither a folder nor a repository that can be had; the text has one line.
        NotADirectoryError: a file.
    """
    name = os.fspath(path_or_hf_repo)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise NotADirectoryError(f"{name} is a file; a model is a folder with config.json and *.safetensors")
    from . import demo

    if name in demo.NAMES:
        device = "cpu" if _bridge.device()["device"] == "cpu" else "gpu"
        if (converted := demo.resolve(name, device=device)) is not None:
            return converted
    if not _REPO_ID.fullmatch(name):
        raise FileNotFoundError(f"no model folder {name!r}")
    return _download(name, revision)


_DOWNLOADS = [
    "*.json",
    "model*.safetensors",
    "*.py",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "*.txt",
    "*.jinja",
]
"""What a model folder is made of; a repository may hold the same weights in other forms."""


def _download(repo: str, revision: str | None) -> Path:
    _bridge.prepare()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=list(_DOWNLOADS)))
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise FileNotFoundError(
            f"no folder {repo!r} here, and the Hugging Face hub did not give a model of that name: {reason}"
        ) from error


def _load(
    folder: Path,
    lazy: bool,
    model_config: dict[str, Any] | None,
    trust_remote_code: bool,
    beside: Callable[[dict[str, Any]], T],
    adapter_path: str | os.PathLike[str] | None = None,
) -> tuple[Model, T]:
    """Load the weights while ``beside(config)`` runs."""
    with _Job(folder, lazy, model_config, adapter_path) as job:
        from mlx_lm.utils import load_config

        # The core looks at all there is before it reads weights. Its errors are clear, and transformers, given a config
        # that asks for a billion layers, would not come back.
        job.wait_until_checked()
        config = _checked_config(load_config(folder), model_config, trust_remote_code, folder)
        make = model_maker(folder, config, model_config, adapter_path)
        result = beside(config)
        return make(job.wait()), result


def _checked_config(
    config: dict[str, Any], overrides: dict[str, Any] | None, trust_remote_code: bool, folder: Path
) -> dict[str, Any]:
    """Apply ``model_config``, refusing code that the core does not run."""
    if code := config.get("model_file"):
        if not trust_remote_code:
            raise ValueError(f"{folder} wants its own code {code!r} to be run; trust_remote_code=True would allow that")
        raise NotImplementedError(f"model_file is not supported yet: {folder} wants its own code {code!r} to be run")
    return {**config, **(overrides or {})}


class _Job:
    """A load that runs in the core. Leaving its ``with`` block before :meth:`wait` returned gives up the model."""

    def __init__(
        self,
        folder: Path,
        lazy: bool,
        model_config: dict[str, Any] | None,
        adapter_path: str | os.PathLike[str] | None = None,
    ) -> None:
        options: dict[str, Any] = {"lazy": lazy}
        if model_config:
            options["config"] = model_config
        if adapter_path is not None:
            options["adapter"] = os.fspath(adapter_path)
        self._job = _bridge.load_start(str(folder), options)
        self._over = False
        self._model = 0

    def wait_until_checked(self) -> None:
        """Wait until the folder's contents are found to be right.

        Raises:
            OSError, ValueError, …: what is wrong with them.
        """
        while not self._over and not self._poll(5)["total"]:
            pass

    def wait(self) -> int:
        """Wait for the end, showing a bar.

        Returns:
            The model's handle, the caller's from now on.

        Raises:
            OSError, ValueError, …: what the load failed with.
        """
        bar = Bar("Loading", "B")
        polls_warming_up = 0
        try:
            while not self._over:
                state = self._poll(WAIT_MS)
                bar.update(state["done"], state["total"])
                polls_warming_up += bool(state.get("warming_up"))
                if polls_warming_up == _PATIENCE_MS // WAIT_MS:
                    _logger.warning("axlm: MLX compiles GPU kernels for this model; the first time that takes a minute")
        finally:
            bar.close()
        handle, self._model = self._model, 0
        return handle

    def _poll(self, wait_ms: int) -> dict[str, Any]:
        try:
            state = _bridge.load_wait(self._job, wait_ms)
        except Exception:
            self._over = True
            raise
        self._model = int(state["model"])
        self._over = bool(self._model)
        return state

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._model:
            _bridge.model_free(self._model)
        elif not self._over:
            _bridge.load_cancel(self._job)
