from typing import Any

from mlx_lm.chat_templates.deepseek_v32 import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
