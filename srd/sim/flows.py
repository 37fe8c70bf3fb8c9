"""Flows that start at their time, or when others are complete."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from srd.sim.simulation import NS_PER_S, Simulation
from srd.sim.transport import Transport


@dataclass(frozen=True, slots=True)
class Flow:
    """So many bytes from one host to another."""

    source: str
    destination: str
    size_bytes: int
    start_s: float = 0.0
    """From the beginning of the experiment; of a flow that waits for others, from when it may start."""
    after: tuple[int, ...] = ()
    """The flows, by number, of which it waits for `needs` to be complete."""
    needs: int = 0


class Running:
    """Starts flows when the ones that they wait for are complete, and notes when each is; time 0 is when it is made."""

    def __init__(self, simulation: Simulation, transport: Transport, flows: Sequence[Flow]) -> None:
        self.began_ns = simulation.now_ns
        self._simulation = simulation
        self._transport = transport
        self._flows = flows
        self._needs = [flow.needs for flow in flows]
        self._waiting: dict[int, list[int]] = defaultdict(list)
        for index, flow in enumerate(flows):
            for other in flow.after:
                self._waiting[other].append(index)
        self._started_s: list[float | None] = [None] * len(flows)
        self._ended_s: list[float | None] = [None] * len(flows)
        self._left = len(flows)

    def is_done(self) -> bool:
        """Whether every flow is complete."""
        return not self._left

    def start(self) -> None:
        """Start the flows that wait for none."""
        for index, flow in enumerate(self._flows):
            if not flow.after:
                self._start(index, not_before_s=0.0)

    def _start(self, index: int, *, not_before_s: float) -> None:
        flow, began_s = self._flows[index], self.began_ns / NS_PER_S
        at = began_s + max(flow.start_s, not_before_s)
        self._started_s[index] = at

        def done(now: float) -> None:
            self._ended_s[index] = now
            self._left -= 1
            for waiting in self._waiting[index]:
                self._needs[waiting] -= 1
                if self._needs[waiting] == 0:
                    self._start(waiting, not_before_s=now - began_s)

        self._transport.flow(self._simulation, flow.source, flow.destination, flow.size_bytes, at=at, done=done)

    def times_s(self) -> Iterator[tuple[Flow, float | None, float | None]]:
        """Yield each flow with the times in the simulation at which it started and ended; None: it has not."""
        yield from zip(self._flows, self._started_s, self._ended_s, strict=True)


def all_reduce(hosts: Sequence[str], *, size_bytes: int) -> tuple[Flow, ...]:
    """Return the flows of a ring all-reduce, whose ring is in this order."""
    count = len(hosts)
    part_bytes = max(size_bytes // count, 1)
    return tuple(
        Flow(
            host,
            hosts[(index + 1) % count],
            part_bytes,
            after=((step - 1) * count + (index - 1) % count,) if step else (),
            needs=min(step, 1),
        )
        for step in range(2 * (count - 1))
        for index, host in enumerate(hosts)
    )
