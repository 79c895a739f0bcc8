from typing import Any

from mlx_lm.kernels.rms_norm_sigmoid_gate import *

def __getattr__(name: str) -> Any: ...  # what the line above leaves out
