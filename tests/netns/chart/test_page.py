"""netns.chart.page: a self-contained file, which a browser renders without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from netns.chart.branches import branches
from netns.chart.mermaid import mermaid
from netns.chart.page import page
from netns.inventory.fabric_layers import nodes_of
from netns.topology.model import leaf_spine
from tests.patience import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHOLE = branches(nodes_of(leaf_spine(name="demo", leaves=4, hosts_per_leaf=4)))


class _Reader(HTMLParser):
    """The resources that a page loads, and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.asks: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.asks += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page__needs_nothing_else() -> None:
    text = page(WHOLE, title="a <b> & c")
    reader = _Reader()
    reader.feed(text)
    assert reader.asks == []
    assert reader.open == []
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(|<script", text)
    assert "<title>a &lt;b&gt; &amp; c</title>" in text


def test_page__shared_layers_and_mermaid_source() -> None:
    text = page(WHOLE, title="demo")
    assert '<td>layer 3</td><td class="number">4</td><td class="number">4</td>' in text
    assert mermaid(WHOLE).splitlines()[3].replace('"', "&quot;").replace(">", "&gt;").replace("<", "&lt;") in text


@pytest.mark.long
def test_page__renders_without_a_network(tmp_path: Path) -> None:
    assert CHROMIUM is not None, "no Chromium here; `make test` installs it (Debian: apt-get install chromium)"
    file, picture = tmp_path / "demo.html", tmp_path / "demo.png"
    file.write_text(page(WHOLE, title="demo"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,900", f"--screenshot={picture}"]
    subprocess.run([*command, file.as_uri()], check=True, capture_output=True, timeout=PATIENCE_S)
    pixels = _colours(picture)
    for red, green, blue in ((0xF5, 0xC2, 0x6B), (0x9F, 0xD0, 0xF2), (0xA9, 0xDB, 0xA0), (0xDF, 0xE6, 0xEC)):
        assert any(max(abs(r - red), abs(g - green), abs(b - blue)) <= 2 for r, g, b in pixels), (red, green, blue)


def _colours(picture: Path) -> set[tuple[int, int, int]]:
    """All colours of a PNG."""
    from matplotlib import image  # noqa: PLC0415 - only this test looks at pixels

    data = (image.imread(picture)[:, :, :3] * 255).round().astype(int).reshape(-1, 3)
    return {(int(r), int(g), int(b)) for r, g, b in data}
