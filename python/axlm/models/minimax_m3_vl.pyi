from typing import Any

from mlx_lm.models.minimax_m3_vl import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
