"""netns.netem.tc_format: tc accepts the arguments, and they parse to the same shape."""

from __future__ import annotations

import pytest

from netns.backends.kernel.capabilities import missing_netem
from netns.backends.kernel.netlink import run_tool
from netns.errors import BackendError
from netns.netem.params import FourStates, GilbertElliott, Slot
from netns.netem.shape import Shape
from netns.netem.tc_format import netem_arguments
from netns.programs import tool

EVERYTHING = [
    (Shape(), "limit 1000"),
    (
        Shape(delay_us=500, jitter_us=0.25, loss_percent=1.5, rate_bps=250_000_000, limit_packets=10),
        "limit 10 delay 500us 0.25us loss random 1.5% rate 250mbit",
    ),
    (
        Shape(delay_us=500, jitter_us=20, delay_correlation_percent=25, distribution="pareto"),
        "limit 1000 delay 500us 20us 25% distribution pareto",
    ),
    (Shape(loss_model=GilbertElliott(1, 10, 70, 0.1)), "limit 1000 loss gemodel 1% 10% 70% 0.1%"),
    (Shape(loss_model=FourStates(1, 90, 5, 50, 0.5)), "limit 1000 loss state 1% 90% 5% 50% 0.5%"),
    (Shape(loss_percent=1e-7, ecn=True), "limit 1000 loss random 0.0000001% ecn"),
    (
        Shape(duplicate_percent=1, corrupt_percent=0.1, corrupt_correlation_percent=10),
        "limit 1000 duplicate 1% corrupt 0.1% 10%",
    ),
    (Shape(delay_us=1000, reorder_percent=25, gap=5), "limit 1000 delay 1ms reorder 25% gap 5"),
    (
        Shape(rate_bps=8, rate_overhead_bytes=20, cell_bytes=53, cell_overhead_bytes=5),
        "limit 1000 rate 8bit 20 53 5",
    ),
    (Shape(slot=Slot(min_us=800, max_us=1000, packets=10)), "limit 1000 slot 800us 1ms packets 10"),
    (
        Shape(slot=Slot(distribution="normal", delay_us=9, jitter_us=1, bytes=7)),
        "limit 1000 slot distribution normal 9us 1us bytes 7",
    ),
]


@pytest.mark.parametrize(("shape", "arguments"), EVERYTHING)
def test_netem_arguments(shape: Shape, arguments: str) -> None:
    assert " ".join(netem_arguments(shape)) == arguments


def test_netem_arguments__newer_than_tc_or_unsupported() -> None:
    assert netem_arguments(Shape(seed=7))[-2:] == ("seed", "7")
    assert netem_arguments(Shape(trace="/a/b"))[-2:] == ("trace", "/a/b")


@pytest.mark.root
@pytest.mark.parametrize("arguments", [arguments for _, arguments in EVERYTHING])
def test_netem_arguments__tc_accepts_them(arguments: str) -> None:
    """tc parses its command line before it sends a request, so the kernel's error shows that it is valid."""
    command = ("unshare", "--net", tool("tc"), "qdisc", "replace", "dev", "lo", "root", "netem", *arguments.split())
    if missing_netem() is None:
        run_tool(*command)
    else:
        with pytest.raises(BackendError, match=r"Specified qdisc kind is unknown\.$"):
            run_tool(*command)
