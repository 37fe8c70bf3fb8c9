"""Two processes, one at each end: a server that reports its port, a client that connects to it, and their results.

Both print the events of netns/base/output.py. The server's first event is `listening {port}`; the last event of
each has its figures, in a format that the caller knows, and as `dropped` the datagrams that its sockets have dropped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from scripts.harness.drops import require_none
from scripts.harness.errors import BenchError
from scripts.harness.process import Event, ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER, Pair

__all__ = ["Event", "Pair", "python", "run_both", "running"]

LISTEN_BOUND_S: Final = 20.0
"""Timeout to start an interpreter and make its data, on a busy machine."""
EXIT_BOUND_S: Final = 15.0
"""Timeout from the last event of one end to that of the other."""


def python(module: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", module, *arguments]


def run_both(
    pair: Pair, *, server: Sequence[str], client: Callable[[str, int], Sequence[str]], bound_s: float
) -> tuple[Event, Event]:
    """Run both; return the server's last event and the client's.

    `client` is called with the server's address and port. Raises BenchError with the processes' errors if one of them
    fails or drops datagrams, or if they have not both ended within `bound_s` of the client's start.
    """
    with running(pair, server=server, client=client) as ended:
        return ended(bound_s)


@contextmanager
def running(
    pair: Pair, *, server: Sequence[str], client: Callable[[str, int], Sequence[str]]
) -> Iterator[Callable[[float], tuple[Event, Event]]]:
    """Run both during the block; yields a function that waits for their ends, as `run_both` does."""
    with ProcessGroup() as group:
        serving = group.start("server", pair.command(RECEIVER, server))
        try:
            port = int(group.event(serving, "listening", bound_s=LISTEN_BOUND_S)["port"])
        except BenchError as error:
            raise BenchError(f"the server did not listen ({error})") from None
        asking = group.start("client", pair.command(SENDER, client(pair.receiver, port)))

        def ended(bound_s: float) -> tuple[Event, Event]:
            group.ended(serving, asking, bound_s=bound_s, after_first_s=EXIT_BOUND_S)
            for each in (serving, asking):
                if not each.events:
                    raise each.failure
            require_none(sum(each.events[-1].get("dropped", 0) for each in (serving, asking)))
            return serving.events[-1], asking.events[-1]

        yield ended
