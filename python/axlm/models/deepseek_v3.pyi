from typing import Any

from mlx_lm.models.deepseek_v3 import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
