"""netns.fabric.kernel: a shape in tc's words, every attribute said."""

from __future__ import annotations

import re

import pytest
from hypothesis import given

from netns.errors import FabricError
from netns.fabric.kernel import netem_arguments
from netns.fabric.netlink import run_tool, tool
from netns.probe import missing_netem
from netns.shape import Shape
from tests.netns.strategies import SHAPES


def test_netem_arguments__reference() -> None:
    shape = Shape(delay_us=500, jitter_us=0.25, loss_percent=1.5, rate_bps=250_000_000, limit_packets=10)
    assert netem_arguments(shape) == (
        "limit", "10", "delay", "500us", "0.25us", "loss", "random", "1.5%", "rate", "250000000bit",
    )  # fmt: skip


def test_netem_arguments__nothing_is_said_too() -> None:
    """A change that leaves the rate out would keep the old one; only a loss may be left out, which takes it away."""
    assert netem_arguments(Shape()) == ("limit", "1000", "delay", "0us", "0us", "rate", "0bit")


@given(SHAPES)
def test_netem_arguments__numbers_are_plain(shape: Shape) -> None:
    for argument in netem_arguments(shape):
        assert re.fullmatch(r"[a-z]+|\d+(bit)?|\d+(\.\d+)?(us|%)", argument)


@pytest.mark.root
@pytest.mark.parametrize(
    "shape",
    [
        Shape(),
        Shape(delay_us=500, rate_bps=250_000_000, limit_packets=10),
        Shape(delay_us=0.001, jitter_us=20, loss_percent=100, rate_bps=8, limit_packets=1),
        Shape(loss_percent=1e-7, rate_bps=100_000_000_000),
    ],
)
def test_netem_arguments__tc_understands_them(shape: Shape) -> None:
    """tc parses its command line before it asks the kernel: without netem, the kernel's refusal shows that it could."""
    netem = ("qdisc", "replace", "dev", "lo", "root", "netem", *netem_arguments(shape))
    if missing_netem() is None:
        run_tool("unshare", "--net", tool("tc"), *netem)
    else:
        with pytest.raises(FabricError, match=r"Specified qdisc kind is unknown\.$"):
            run_tool("unshare", "--net", tool("tc"), *netem)
