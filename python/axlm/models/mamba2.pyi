from typing import Any

from mlx_lm.models.mamba2 import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
