from typing import Any

from mlx_lm.kernels.post_expert_norm_combine import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
