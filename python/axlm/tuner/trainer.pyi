from typing import Any

from mlx_lm.tuner.trainer import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
