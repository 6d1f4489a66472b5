"""torch_xla on XLA's CPU device; whoever imports this file is skipped where torch_xla is not."""

from __future__ import annotations

import os
from typing import Any

import pytest

os.environ["PJRT_DEVICE"] = "CPU"

torch_xla: Any = pytest.importorskip("torch_xla")
xla_builder: Any = pytest.importorskip("torch_xla.core.xla_builder")
metrics: Any = pytest.importorskip("torch_xla.debug.metrics")
bindings: Any = torch_xla._XLAC

# Python numbers become constants of the module; they would be parameters without names.
bindings._set_xla_all_numbers_special_scalars(True)
