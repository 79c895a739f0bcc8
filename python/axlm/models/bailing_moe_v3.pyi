from typing import Any

from mlx_lm.models.bailing_moe_v3 import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
