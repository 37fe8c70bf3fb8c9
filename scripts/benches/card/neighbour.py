"""Another tenant of two cards: its applications, while one is measured.

`fair` makes round trips of 64 B, as the tenant that is measured. `rings` posts SENDs of 64 B as fast as it can. `wire`
keeps 16 writes of 1 MiB outstanding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from scripts.benches.card.cards import START_BOUND_S, TwoCards, device
from scripts.harness.client_server import LISTEN_BOUND_S
from scripts.harness.efa_perf import commands
from scripts.harness.process import ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER
from scripts.harness.waiting import wait_until
from srd.perf.sweep.plan import MAX_DEPTH, MAX_SECONDS, Operation, Sweep

VF: Final = 1
"""Its virtual function; the tenant that is measured has the first."""
FAIR, RINGS, WIRE = "fair", "rings", "wire"
KINDS: Final = {
    FAIR: Sweep(Operation.LATENCY, sizes=(64,), iterations=0, seconds=MAX_SECONDS),
    RINGS: Sweep(Operation.RATE, sizes=(64,), iterations=0, seconds=MAX_SECONDS, tx_depth=MAX_DEPTH),
    WIRE: Sweep(Operation.WRITE, sizes=(1 << 20,), iterations=0, seconds=MAX_SECONDS, tx_depth=16),
}


@contextmanager
def neighbour(cards: TwoCards, kind: str) -> Iterator[Callable[[], float]]:
    """Run a neighbour until the end of the block; gives its requests per second, as its card counts them from then on.

    Raises BenchError if it does not begin, or has ended before the block has.
    """
    pair = cards.pair
    server, client = commands(cards.b.device(VF), cards.a.device(VF), KINDS[kind], events=kind == WIRE, naps=False)
    with ProcessGroup() as group:
        serving = group.start("neighbour's server", pair.command(RECEIVER, server))
        port = group.event(serving, "listening", bound_s=LISTEN_BOUND_S)["port"]
        group.start("neighbour", pair.command(SENDER, client(pair.receiver, port)))
        none = _requests(cards)

        def has_begun() -> bool:
            group.require_running()
            return _requests(cards) > none

        wait_until(has_begun, within_s=START_BOUND_S, missing="the neighbour made no request")
        before, began_at = _requests(cards), time.monotonic()
        yield lambda: (_requests(cards) - before) / (time.monotonic() - began_at)
        group.require_running()


def _requests(cards: TwoCards) -> int:
    counters = cards.a.counters(device(VF))
    return counters["send_wrs"] + counters["rdma_write_wrs"]
