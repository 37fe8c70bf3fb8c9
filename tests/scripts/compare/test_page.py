from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from scripts.compare.page import render
from scripts.compare.report import Report

_VOID = {"meta", "br", "link", "img", "hr"}


class Balanced(HTMLParser):
    """Collects the text; asserts that every element is closed, that ids are unique and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href"):
                assert value is not None
                assert value.startswith("#"), f"{name}={value} leaves the page"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(report: Report) -> Balanced:
    parser = Balanced()
    parser.feed(render(report))
    parser.close()
    return parser


def test_render__is_well_formed_and_self_contained(page: Balanced) -> None:
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))


def test_render__contains_figures_and_environment(page: Balanced) -> None:
    text = re.sub(r"\s+", " ", page.text)
    for expected in (
        "1 Gbit/s over 2 spines",
        "one round",
        "this kernel has no netem",
        "the relay used 31 % to 31 % of one core",
        "TCP cubic, blackhole: stopped after 20 s with 40 % received",
        "clean: SRD reached 80 % of the capacity, 4.0 times TCP cubic",
        "MPTCP: mptcp: this kernel offers <none>",
        "incomplete",
        "6.18",
        "random from seed 1",
    ):
        assert expected in text


def test_render__a_kernel_fabric_has_no_relay(report: Report) -> None:
    report["conditions"]["clean"]["tcp-cubic"]["relay_cpu_fraction"] = None
    html = render({**report, "fabric": "kernel", "fabric_reason": "netem works", "rounds": 3})
    assert "shaped by tc netem in the kernel (netem works)" in html
    assert "TAP pairs" not in html
    assert "medians of 3 rounds" in html
