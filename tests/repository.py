"""Where the repository lies, and real data beside it, which tests read when it is there."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs"
DOCS = ROOT / "docs"
MODELS = ROOT / "models"
SHARED_DATA = ROOT.parent / "shared" / "data"
