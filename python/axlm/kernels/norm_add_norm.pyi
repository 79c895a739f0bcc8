from typing import Any

from mlx_lm.kernels.norm_add_norm import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
