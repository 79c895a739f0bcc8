"""mlx_lm's modules under axlm's name."""

from __future__ import annotations

import importlib
import subprocess
import sys
from unittest.mock import patch

import axlm
import pytest

LAZY = """
import sys
import axlm
import axlm.models
import axlm.tuner

def loaded(): return {name for name in ("numpy", "mlx.core", "mlx_lm", "transformers") if name in sys.modules}
assert not loaded(), loaded()
import axlm.models.gemma, axlm.tool_parsers.json_tools
assert not loaded(), loaded()
from axlm.models.gemma import ModelArgs
assert "mlx_lm.models.gemma" in sys.modules and "mlx_lm.models.gemma2" not in sys.modules
"""


def test_nothing_is_loaded_before_a_name_is_asked_for() -> None:
    result = subprocess.run([sys.executable, "-c", LAZY], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("models.base", "scaled_dot_product_attention"),
        ("models.phi3", "Model"),
        ("tool_parsers.json_tools", "parse_tool_call"),
        ("tuner.utils", "linear_to_lora_layers"),
        ("tuner", "train"),
        ("tokenizer_utils", "TokenizerWrapper"),
        ("utils", "quantize_model"),
        ("utils", "TokenizerWrapper"),
        ("generate", "str2bool"),
        ("quant.awq", "main"),
        ("lora", "main"),
        ("perplexity", "np"),
    ],
)
def test_names_are_the_very_objects(module: str, name: str) -> None:
    ours, theirs = (importlib.import_module(f"{package}.{module}") for package in ("axlm", "mlx_lm"))
    assert getattr(ours, name) is getattr(theirs, name)
    assert name in dir(ours)


def test_what_is_ours_comes_from_us_by_whatever_way() -> None:
    from axlm.chat import load
    from axlm.generate import load as again
    from axlm.perplexity import load as once_more

    assert load is again is once_more is axlm.load
    generate = importlib.import_module("axlm.generate")
    assert generate.make_sampler is axlm.sample_utils.make_sampler
    assert generate.load_prompt_cache is axlm.models.cache.load_prompt_cache


def test_functions_are_functions_whichever_way_their_modules_are_imported() -> None:
    import axlm.convert
    import axlm.generate
    from axlm.convert import mixed_quant_predicate_builder
    from mlx_lm.convert import mixed_quant_predicate_builder as theirs

    assert callable(axlm.convert) and callable(axlm.generate) and mixed_quant_predicate_builder is theirs


def test_a_submodule_is_mlx_lms_module() -> None:
    import axlm.models.olmo2 as ours
    import mlx_lm.models.olmo2 as theirs

    assert ours is theirs is axlm.models.olmo2
    assert sys.modules["axlm.models.olmo2"] is theirs


def test_a_placeholder_passes_everything_on() -> None:
    import mlx_lm.models.olmoe as theirs

    placeholder = importlib.import_module("axlm.models.olmoe")
    with patch("axlm.models.olmoe.Model", "patched"):
        assert theirs.Model == "patched"
    assert theirs.Model != "patched"
    placeholder.new = 1  # type: ignore[attr-defined]
    assert theirs.new == 1
    del placeholder.new
    assert not hasattr(theirs, "new")
    assert "Model" in dir(placeholder) and "olmoe" in repr(placeholder)


def test_everything_can_be_imported_with_a_star() -> None:
    for module in ("axlm.models.phi", "axlm.utils", "axlm.sample_utils"):
        names: dict[str, object] = {}
        exec(f"from {module} import *", names)
        assert {"axlm.models.phi": "ModelArgs", "axlm.utils": "load_config"}.get(module, "make_sampler") in names


def test_what_is_not_there_is_said_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"axlm\.models\.nothing"):
        importlib.import_module("axlm.models.nothing")
    for module in (axlm, axlm.models, axlm.utils, importlib.import_module("axlm.models.phixtral")):
        with pytest.raises(AttributeError, match="nothing"):
            _ = module.nothing
        assert not hasattr(module, "__wrapped__")
    assert not hasattr(axlm, "server")
