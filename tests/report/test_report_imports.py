"""Reports start at once: nothing in the room imports what takes seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from neuron_llm import report


def test_no_file_of_the_room_imports_torch_or_transformers() -> None:
    (folder,) = report.__path__
    paths = (path.relative_to(folder) for path in Path(folder).rglob("*.py"))
    names = sorted(".".join(path.with_suffix("").parts) for path in paths)
    names = [name for name in names if not name.endswith("__init__")]
    assert {"workload.trace_reader", "html.page"} < set(names)
    imports = "; ".join(f"import neuron_llm.report.{name}" for name in names)
    check = "import sys; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", f"{imports}; {check}"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
