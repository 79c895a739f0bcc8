from typing import Any

from mlx_lm.models.hunyuan_v1_dense import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
