"""Loading: from a name to a model and its tokenizer. The other names of ``mlx_lm.utils`` are mlx_lm's own."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from . import _bridge, _fallback, _tokenizer
from ._bridge import WAIT_MS
from ._delegate import delegate
from ._errors import file_error
from ._progress import Bar
from .model import Model, model_maker

if TYPE_CHECKING:
    import mlx.nn as nn
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from typing_extensions import Self

T = TypeVar("T")

__getattr__, __dir__ = delegate(__name__)

_logger = logging.getLogger("axlm")

_PATIENCE_MS = 3000
"""How long warming up may take before the user is told what the wait is."""

_REPO_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


# A model that mlx_lm runs is a module of its own classes: "| Any" lets a checker take what either has.
@overload
def load(
    path_or_hf_repo: str | os.PathLike[str],
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    return_config: Literal[False] = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    *,
    fallback: Literal[False],
) -> tuple[Model, TokenizerWrapper]: ...
@overload
def load(
    path_or_hf_repo: str | os.PathLike[str],
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    return_config: Literal[False] = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    *,
    fallback: bool = True,
) -> tuple[Model | Any, TokenizerWrapper]: ...
@overload
def load(
    path_or_hf_repo: str | os.PathLike[str],
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    *,
    return_config: Literal[True],
    revision: str | None = None,
    trust_remote_code: bool = False,
    fallback: bool = True,
) -> tuple[Model | Any, TokenizerWrapper, dict[str, Any]]: ...
@overload
def load(
    path_or_hf_repo: str | os.PathLike[str],
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    return_config: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    *,
    fallback: bool = True,
) -> tuple[Model | Any, TokenizerWrapper] | tuple[Model | Any, TokenizerWrapper, dict[str, Any]]: ...
def load(
    path_or_hf_repo: str | os.PathLike[str],
    tokenizer_config: dict[str, Any] | None = None,
    model_config: dict[str, Any] | None = None,
    adapter_path: str | None = None,
    lazy: bool = False,
    return_config: bool = False,
    revision: str | None = None,
    trust_remote_code: bool = False,
    *,
    fallback: bool = True,
) -> tuple[Model | Any, TokenizerWrapper] | tuple[Model | Any, TokenizerWrapper, dict[str, Any]]:
    """Load a model and its tokenizer.

    A model that the core does not run (another family, one with code of its own, a storage that needs conversion) is
    loaded by mlx_lm, with a UserWarning that says so; the functions of :mod:`axlm.generate` work on it all the same.

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
        fallback: False raises where mlx_lm would load the model.

    Returns:
        (model, tokenizer), and the configuration if asked for. The model is an MLX module where mlx_lm loaded it.

    Raises:
        FileNotFoundError: no such folder, no ``config.json`` or weights in it, or a repository that cannot be had; no
            such adapter, or a file of it is missing.
        ValueError: a model family that is not known (the text lists the core's), weights that do not fit the
            configuration, or an adapter that does not fit the model.
        KeyError: the adapter's configuration has no scale, rank or dropout.
        NotImplementedError: without ``fallback`` a model of a family of the core's that the core cannot run.
    """
    folder = resolve(path_or_hf_repo, revision)
    _bridge.prepare()  # before mlx_lm, which imports mlx.core

    def make_tokenizer(config: dict[str, Any]) -> TokenizerWrapper:
        return _tokenizer.load(folder, tokenizer_config, config.get("eos_token_id"))

    model, config, tokenizer = _load(
        folder, lazy, model_config, trust_remote_code, fallback, make_tokenizer, adapter_path
    )
    return (model, tokenizer, config) if return_config else (model, tokenizer)


def load_model(
    model_path: str | os.PathLike[str],
    lazy: bool = False,
    strict: bool = True,
    model_config: dict[str, Any] | None = None,
    get_model_classes: Callable[[dict[str, Any]], tuple[type, type]] | None = None,
    trust_remote_code: bool = False,
    *,
    fallback: bool = True,
) -> tuple[Model | Any, dict[str, Any]]:
    """Load a model from a local folder, without a tokenizer.

    Args:
        model_path: an MLX model folder.
        lazy: read weights when they are first needed.
        strict: False allows weights that are missing or that nobody asks for; mlx_lm loads the model then.
        model_config: as for :func:`load`.
        get_model_classes: gives (model class, arguments class) for a configuration; mlx_lm loads the model then.
        trust_remote_code: as for :func:`load`.
        fallback: as for :func:`load`.

    Returns:
        (model, configuration).

    Raises:
        FileNotFoundError, ValueError, NotImplementedError: as :func:`load`.
    """
    folder = Path(model_path)
    _bridge.prepare()
    own = {} if strict else {"strict": False}
    if get_model_classes is not None:
        own["get_model_classes"] = get_model_classes
    if own:
        reason = f"{' and '.join(own)} are for mlx_lm's classes only"
        if not fallback:
            raise NotImplementedError(reason)
        options = {"lazy": lazy, "model_config": model_config, "trust_remote_code": trust_remote_code, **own}
        return _fallback.load_model(folder, reason, 2, **options)
    model, config, _ = _load(folder, lazy, model_config, trust_remote_code, fallback, lambda _: None)
    return model, config


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
        raise file_error(
            f"{name} is a file; a model is a folder with config.json and *.safetensors", name, errno.ENOTDIR
        )
    from . import demo

    if name in demo.NAMES:
        device = "cpu" if _bridge.device()["device"] == "cpu" else "gpu"
        if (converted := demo.resolve(name, device=device)) is not None:
            return converted
    if not _REPO_ID.fullmatch(name):
        raise file_error(f"no model folder {name!r}", name)
    return _download(name, revision)


_DOWNLOADS = [
    "*.json",
    "model*.safetensors",
    "*.py",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "*.txt",
    "*.jsonl",
    "*.jinja",
]
"""What a model folder is made of; a repository may hold the same weights in other forms."""


def _download(repo: str, revision: str | None) -> Path:
    """Fetch a repository as mlx_lm does, with huggingface_hub (or modelscope, if MLXLM_USE_MODELSCOPE is set)."""
    _bridge.prepare()
    from mlx_lm import utils as theirs

    try:
        folder = theirs.snapshot_download(repo, revision=revision, allow_patterns=list(_DOWNLOADS))
    except (OSError, ValueError) as error:
        raise file_error(
            f"no folder {repo!r} here, and the Hugging Face hub did not give a model of that name: "
            f"{_hub_problem(error, revision)}",
            repo,
        ) from error
    return Path(folder)


def _hub_problem(error: Exception, revision: str | None) -> str:
    """Say in a few words why a repository could not be had."""
    from huggingface_hub import errors

    cause = error.__cause__
    if isinstance(error, errors.GatedRepoError):
        return "access to it must be granted on its page there, to the account that `hf auth login` names"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is none, or it is private (then `hf auth login` may help)"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no revision {revision!r}"
    if isinstance(error, errors.IncompleteSnapshotError):
        return "the hub cannot be reached, and not all of its files were downloaded before"
    if isinstance(error, errors.LocalEntryNotFoundError):
        if isinstance(cause, errors.OfflineModeIsEnabled):
            return "HF_HUB_OFFLINE is set, and it was not downloaded before"
        return f"the hub cannot be reached ({cause or error}), and it was not downloaded before"
    return str(error).strip().partition("\n")[0]


def _load(
    folder: Path,
    lazy: bool,
    model_config: dict[str, Any] | None,
    trust_remote_code: bool,
    fallback: bool,
    beside: Callable[[dict[str, Any]], T],
    adapter_path: str | os.PathLike[str] | None = None,
) -> tuple[Model | nn.Module, dict[str, Any], T]:
    """Load the weights while ``beside(config)`` runs; give the model, its configuration and what that returned."""
    from mlx_lm.utils import load_config

    with _Job(folder, lazy, model_config, adapter_path) as job:
        # The core looks at all there is before it reads weights. Its errors are clear, and transformers, given a config
        # that asks for a billion layers, would not come back.
        try:
            job.wait_until_checked()
            config = load_config(folder)
            if code := config.get("model_file"):
                raise NotImplementedError(f"config.json: model_file: the model comes with its own code, {code!r}")
        except (_bridge.UnknownFamilyError, NotImplementedError) as error:
            if not fallback:
                raise
            reason = error
        else:
            config = {**config, **(model_config or {})}
            make = model_maker(folder, config, model_config, adapter_path)
            result = beside(config)
            return make(job.wait()), config, result
    options = {"lazy": lazy, "model_config": model_config, "trust_remote_code": trust_remote_code}
    model, config = _fallback.load_model(folder, reason, 3, adapter_path=adapter_path, **options)
    return model, config, beside(config)


def load_adapters(model: Model | nn.Module, adapter_path: str | os.PathLike[str]) -> Model | nn.Module:
    """Give a loaded model an adapter, in place of the one that it has. What it is generating ends with a ValueError.

    Args:
        model: a model from :func:`load`, or one of mlx_lm's.
        adapter_path: as for :func:`load`.

    Returns:
        The same model.

    Raises:
        FileNotFoundError, KeyError, ValueError: as :func:`load`. The model is then as it was.
    """
    if not isinstance(model, Model):
        from mlx_lm.utils import load_adapters as theirs

        return theirs(model, os.fspath(adapter_path))
    model._adapt(adapter_path)
    return model


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
