"""netns.backends.kernel.capabilities without netem; test_capabilities_netem.py needs a kernel with netem."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from netns.backends.kernel.capabilities import accepts_seeds, missing, missing_netem
from netns.backends.kernel.netlink import run_tool
from netns.netem.shape import Shape

REASON = "Specified qdisc kind is unknown"


NAMED = """
import os
from netns.backends.kernel.capabilities import missing_netem
missing_netem()
print(os.listdir("/run/netns"))
"""


@pytest.mark.root
def test_missing_netem__agrees_with_the_kernel_and_leaves_nothing() -> None:
    before = run_tool("tc", "qdisc", "show", "dev", "lo"), Path("/proc/self/ns/net").readlink()
    reason = missing_netem()
    assert reason is None or reason == REASON
    assert (run_tool("tc", "qdisc", "show", "dev", "lo"), Path("/proc/self/ns/net").readlink()) == before
    assert accepts_seeds() in ({True, False} if reason is None else {False})


@pytest.mark.root
def test_missing_netem__leaves_no_named_namespace() -> None:
    """With a /run of its own, as other processes make and remove namespaces meanwhile."""
    own_run = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && exec "$0" -c "$1"'
    assert run_tool("unshare", "--mount", "sh", "-c", own_run, sys.executable, NAMED) == "[]\n"


def test_missing__no_kernel_replays_traces(tmp_path: Path) -> None:
    assert missing(Shape(trace=str(tmp_path))) == "its netem has no traces"
