from typing import Any

from mlx_lm.models.kimi_k25 import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
