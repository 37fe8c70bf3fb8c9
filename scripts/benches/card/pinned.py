"""A veth pair whose ends have processors of their own, as two hosts would.

A card and the applications at its end share them, and take turns by `sched_yield`. Without this the system moves the
processes between processors, and an application often shares one with the other end's card: round trips take 1.6 times
as long then, and the rate of small messages halves, at random.

All processes, in-process SRD's too, have the policy SCHED_RR (sched(7)): a yield hands the processor to the next of
them. Under the default policy who yields also waits for some milliseconds for one that does not yield.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from scripts.harness.two_hosts import TwoHosts

ROUND_ROBIN: Final = ("chrt", "--rr", "1")


def pinned(pair: TwoHosts) -> TwoHosts:
    """Return a pair with processors of their own for its ends."""
    first, second = (
        (*ROUND_ROBIN, "taskset", "--cpu-list", ",".join(map(str, processors)))
        for processors in halves(sorted(os.sched_getaffinity(0)))
    )
    return pair.on((first, second))


def halves(processors: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return each end's processors: half of them, or the same one if there is only one."""
    middle = len(processors) // 2
    return list(processors[:middle] or processors), list(processors[middle:])
