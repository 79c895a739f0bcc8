from typing import Any

from mlx_lm.tool_parsers.json_tools import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
