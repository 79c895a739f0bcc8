from typing import Any

from mlx_lm.tool_parsers.qwen3_coder import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
