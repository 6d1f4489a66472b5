"""Make the picture of bucket-report's page that the README shows; needs Chromium.

Usage: python examples/report_picture.py CONFIG PICTURE.png
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WIDTH, HEIGHT = 1280, 1545
NUM_REQUESTS = 2000


def write_trace(path: Path) -> None:
    """Write a made-up workload: Poisson arrivals, lengths drawn from log-normal distributions."""
    rng, arrival_s = random.Random(7), 0.0
    with path.open("w", encoding="utf-8") as file:
        file.write("arrival_s,prompt_tokens,output_tokens\n")
        for _ in range(NUM_REQUESTS):
            arrival_s += rng.expovariate(0.6)
            prompt_tokens = min(int(rng.lognormvariate(4.6, 0.9)) + 4, 900)
            output_tokens = min(int(rng.lognormvariate(3.6, 0.7)) + 1, 120)
            file.write(f"{arrival_s:.2f},{prompt_tokens},{output_tokens}\n")


def make_picture(config: Path, picture: Path, chromium: str) -> None:
    """Report on the workload under a configuration, and take a picture of the page's top."""
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copyfile(config, Path(scratch) / config.name)
        write_trace(Path(scratch) / "trace.csv")
        model = config.resolve().parent.parent / "models"
        (Path(scratch) / "models").symlink_to(model)
        questions = ["--trace", "trace.csv", "--max-graphs", "4", "--simulate", "--target", "cpu"]
        subprocess.run(
            [
                *(sys.executable, "-m", "neuron_llm.cli.main", "bucket-report", config.name),
                *(*questions, "--html", "report.html", "--quiet"),
            ],
            cwd=scratch,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        subprocess.run(
            [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={scratch}/profile",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--screenshot={picture.resolve()}",
                f"{scratch}/report.html",
            ],
            stderr=subprocess.DEVNULL,
            check=True,
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("error: no `chromium` on PATH")
    make_picture(Path(sys.argv[1]), Path(sys.argv[2]), browser)
