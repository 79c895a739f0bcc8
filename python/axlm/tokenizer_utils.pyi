from typing import Any

from mlx_lm.tokenizer_utils import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
