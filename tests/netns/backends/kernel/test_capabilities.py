"""netns.backends.kernel.capabilities without netem; test_capabilities_netem.py needs a kernel with netem."""

from __future__ import annotations

from pathlib import Path

import pytest

from netns.backends.kernel.capabilities import accepts_seeds, missing, missing_netem
from netns.backends.kernel.netlink import run_tool
from netns.netem.shape import Shape

REASON = "Specified qdisc kind is unknown"


@pytest.mark.root
def test_missing_netem__agrees_with_the_kernel_and_leaves_nothing() -> None:
    before = run_tool("ip", "netns", "list"), run_tool("tc", "qdisc", "show", "dev", "lo")
    reason = missing_netem()
    assert reason is None or reason == REASON
    assert (run_tool("ip", "netns", "list"), run_tool("tc", "qdisc", "show", "dev", "lo")) == before
    assert accepts_seeds() in ({True, False} if reason is None else {False})


def test_missing__no_kernel_replays_traces(tmp_path: Path) -> None:
    assert missing(Shape(trace=str(tmp_path))) == "its netem has no traces"
