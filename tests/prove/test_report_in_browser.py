"""The page of a report in a real browser: light and dark, wide and narrow."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from html import escape
from pathlib import Path

import pytest
from report_factory import make_subject, write_lengths

from neuron_llm.report.html.page import render_page
from neuron_llm.report.report_builder import ReportBuilder, ReportQuestion

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SCHEMES = {"light": "--disable-features=WebContentsForceDark", "dark": "--force-dark-mode"}
WIDTHS = {"wide": 1280, "narrow": 360}
# Put into a copy of the page, in a frame as wide as is wanted: no window is narrower than 500. Says
# how wide the page is, in how many columns figures stand, and which text lies outside its picture.
PROBE = """<script>
addEventListener("load", () => {
  const root = document.documentElement, outside = [];
  for (const svg of document.querySelectorAll("svg")) {
    const field = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBoundingClientRect();
      if (box.left < field.left - 1 || box.right > field.right + 1) outside.push(text.textContent);
    }
  }
  const columns = new Set([...document.querySelectorAll("figure")].map(f => f.offsetLeft)).size;
  const result = [root.scrollWidth, root.clientWidth, columns, outside.join("|")];
  parent.document.documentElement.dataset.result = result.join(";");
});
</script>"""

pytestmark = [
    pytest.mark.prove,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    lengths = [3 + 7 * i % 61 for i in range(200)] + [100, 200, 300]
    trace = write_lengths(directory / "t.csv", *lengths, output_tokens=9)
    report = ReportBuilder(make_subject(directory), None).build(
        ReportQuestion(trace=trace, is_simulated=True)
    )
    path = directory / "report.html"
    path.write_text(render_page(report), encoding="utf-8")
    return path


def chromium(directory: Path, *flags: str) -> str:
    """Run the browser once, with no network, and return what it prints."""
    assert CHROMIUM is not None
    ended = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={directory / 'profile'}",
            *flags,
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return ended.stdout


def decode_png(path: Path) -> list[bytes]:
    """Return the rows of a screenshot, three or four bytes a pixel."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, _, _, colour = struct.unpack(">IIBB", body[:10])
        packed += body if kind == b"IDAT" else b""
        at += length + 12
    size = {2: 3, 6: 4}[colour]
    return _unfiltered(zlib.decompress(packed), width * size, size)


def _unfiltered(data: bytes, stride: int, size: int) -> list[bytes]:
    rows, above = [], bytes(stride)
    for start in range(0, len(data), stride + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + stride])
        for i in range(stride):
            left = row[i - size] if i >= size else 0
            corner = above[i - size] if i >= size else 0
            row[i] = (row[i] + _predicted(kind, left, above[i], corner)) & 255
        above = bytes(row)
        rows.append(above)
    return rows


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind < 4:
        return (0, left, up, (left + up) // 2)[kind]
    estimate = left + up - corner
    return min((left, up, corner), key=lambda value: abs(estimate - value))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_page_fits_and_shows_something(
    page: Path, tmp_path: Path, scheme: str, width: str
) -> None:
    size = f"--window-size={WIDTHS[width]},900"
    shot = tmp_path / "shot.png"
    chromium(tmp_path, SCHEMES[scheme], size, f"--screenshot={shot}", page.as_uri())
    rows = decode_png(shot)
    # The page's own colour at the left edge, and many others where there are pictures.
    brightness = sum(rows[-1][:3]) / 3
    assert brightness > 200 if scheme == "light" else brightness < 60
    pixels = {row[i : i + 3] for row in rows[::5] for i in range(0, len(row) - 3, 12)}
    assert len(pixels) > 20


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows(page: Path, tmp_path: Path, width: str) -> None:
    probed = escape(page.read_text().replace("</body>", f"{PROBE}</body>"))
    outer = tmp_path / "outer.html"
    style = f"width: {WIDTHS[width]}px; height: 900px; border: 0"
    outer.write_text(f'<!DOCTYPE html><iframe style="{style}" srcdoc="{probed}"></iframe>')
    document = chromium(tmp_path, "--window-size=1400,1000", "--dump-dom", outer.as_uri())
    found = re.search(r'data-result="([^"]*)"', document)
    assert found is not None
    scroll_width, client_width, columns, outside = found[1].split(";", 3)
    assert int(client_width) == WIDTHS[width]
    assert int(scroll_width) <= int(client_width)
    assert int(columns) == (1 if width == "narrow" else 2)
    assert outside == ""
