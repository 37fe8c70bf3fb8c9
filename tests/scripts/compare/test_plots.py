from __future__ import annotations

import struct
import xml.etree.ElementTree as ET

from scripts.compare import contestants
from scripts.compare.plots import picture_png, progress_svg
from scripts.compare.report import Report


def test_progress_svg__draws_each_contestant_in_its_colour(report: Report) -> None:
    svg = progress_svg(report, "blackhole")
    root = ET.fromstring(svg)  # noqa: S314  our own text
    assert root.tag.endswith("svg")
    assert "seconds since the first byte" in svg
    for key in ("srd", "tcp-cubic"):
        assert contestants.BY_KEY[key].colour.lower() in svg.lower()
    assert contestants.BY_KEY["mptcp"].colour.lower() not in svg.lower()
    assert "currentColor" in svg
    assert "#123456" not in svg


def test_progress_svg__is_the_same_for_the_same_report(report: Report) -> None:
    assert progress_svg(report, "clean") == progress_svg(report, "clean")


def test_picture_png__has_a_panel_for_each_condition(report: Report) -> None:
    def width(png: bytes) -> int:
        assert png.startswith(b"\x89PNG")
        (pixels,) = struct.unpack(">I", png[16:20])
        return int(pixels)

    both = width(picture_png(report))
    del report["conditions"]["blackhole"]
    assert both == 2 * width(picture_png(report))


def test_picture_png__an_empty_file_can_be_drawn(report: Report) -> None:
    report["file"]["bytes"] = 0
    assert picture_png(report).startswith(b"\x89PNG")
