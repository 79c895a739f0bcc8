from typing import Any

from mlx_lm.models.gemma import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
