from typing import Any

from mlx_lm.kernels.qk_norm import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
