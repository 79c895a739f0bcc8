from typing import Any

from mlx_lm.models.prism_hadamard_qwen35 import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
