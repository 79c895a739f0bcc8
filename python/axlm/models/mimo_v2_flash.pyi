from typing import Any

from mlx_lm.models.mimo_v2_flash import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
