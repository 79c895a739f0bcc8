"""Settings and models that the tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

# Before anything loads MLX: the same BLAS everywhere, whatever the machine has, so that a test gives the same numbers
# on each; and no test reaches for a network.
os.environ.setdefault("AXLM_BLAS", "reference")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

CACHE = Path(__file__).resolve().parent.parent / ".cache"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Give the folder of a tiny random model by its name in fixtures/tiny_models.py; it is made once."""
    from fixtures import tiny_models

    cache = CACHE / "tiny"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:  # a checkout that cannot be written
        cache = tmp_path_factory.mktemp("tiny")
    return lambda name: tiny_models.make(name, cache)


@pytest.fixture(scope="session")
def smollm2() -> Callable[[str], Path]:
    """Give the folder of a real small model by its name in axlm.demo, which says what to install if it is missing."""
    from axlm import demo

    def folder(name: str = demo.DEFAULT) -> Path:
        found = demo.resolve(name)
        assert found is not None, f"{name} is no demo model"
        return found

    return folder
