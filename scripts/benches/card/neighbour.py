"""Another tenant of two cards: its applications, while one is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from scripts.benches.card.cards import START_BOUND_S, WORKER, TwoCards, await_event, device
from scripts.harness.client_server import LISTEN_BOUND_S, Event, python
from scripts.harness.errors import BenchError
from scripts.harness.process import Process, ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER

VF: Final = 1
"""Its virtual function; the tenant that is measured has the first."""


@contextmanager
def neighbour(cards: TwoCards, kind: str) -> Iterator[Callable[[], float]]:
    """Run a neighbour (worker/flood.py) until the end of the block; gives its requests per second, from then on.

    Raises BenchError if it does not begin, or has ended before the block has.
    """
    pair, name, options = cards.pair, device(VF), ("--kind", kind)
    with ProcessGroup() as pipes:
        argv = python(WORKER, "flood-receive", str(cards.b.run_dir), name, *options)
        server = pipes.add(Process.start("neighbour's server", command=pair.command(RECEIVER, argv)))
        port = await_event(pipes, server, "listening", bound_s=LISTEN_BOUND_S)["port"]
        argv = python(WORKER, "flood-send", str(cards.a.run_dir), name, pair.receiver, str(port), *options)
        client = pipes.add(Process.start("neighbour", command=pair.command(SENDER, argv)))
        await_event(pipes, client, "flooding", bound_s=START_BOUND_S)
        yield lambda: requests_per_second(client.events)
        for process in (client, server):
            if process.exit_status is not None:
                process.stop()  # which collects the rest of its output
                raise BenchError(f"the {process.name} ended with status {process.exit_status}: {process.last_error}")


def requests_per_second(events: list[Event]) -> float:
    """Return a neighbour's rate from its last count. Raises BenchError if there is none."""
    counts = [event for event in events if event["event"] == "flooded"]
    if not counts:
        raise BenchError("the neighbour has not counted what it sent; measure for longer")
    return float(counts[-1]["requests"] / counts[-1]["seconds"])
