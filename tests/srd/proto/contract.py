"""Shared by the tests of the contract: two connected cores with registered memory, and one-line requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from netns.netem.shape import Shape
from srd.proto.config import ProtocolConfig
from srd.proto.events import MessageAborted, WriteReceived
from srd.proto.memory import Destinations
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Conditions, Network, Node, completed

KEY_A, KEY_B = 0xA11C_E000_0000_0001, 0xB0B0_0000_0000_0002
START_A, START_B = 10_000, 20_000
"""Starts of the registrations; not 0, so that an offset that is not translated shows."""
SIZE = 8 << 20
MIB = 1 << 20


class Pair:
    """`a` is the requester, `b` the responder; both have registered SIZE bytes with all rights."""

    def __init__(
        self,
        *,
        seed: int = 1,
        shape: Shape | None = None,
        conditions: Conditions | None = None,
        destinations: Destinations | None = None,
        **config: Any,
    ) -> None:
        """`destinations` are b's."""
        self.network = Network(
            seed=seed,
            shape=shape,
            conditions=conditions,
            config=replace(ProtocolConfig(), **config),
            region_bytes=16 << 20,
            destinations={} if destinations is None else {"b": destinations},
        )
        self.a, self.b = self.network.a, self.network.b
        self.a.keys.ranges[KEY_A] = (START_A, SIZE, "lrw")
        self.b.keys.ranges[KEY_B] = (START_B, SIZE, "lrw")
        self.at_a, self.at_b = self.network.connect()

    def send(self, request: int, *, length: int, at: int = 0, immediate: int | None = None, key: int = 0) -> None:
        send = WorkRequest(request=request, payload_offset=at, length=length, immediate=immediate, key=key)
        self.a.core.post(self.at_a, send)

    def write(
        self,
        request: int,
        *,
        length: int,
        at: int = 0,
        offset: int = 0,
        key: int = KEY_B,
        immediate: int | None = None,
        flow: int = 0,
    ) -> None:
        write = WorkRequest(request, length, at, Opcode.WRITE, key=key, offset=offset, immediate=immediate, flow=flow)
        self.a.core.post(self.at_a, write)

    def read(
        self, request: int, *, length: int, offset: int = 0, key: int = KEY_B, to: int = 0, local_key: int = KEY_A
    ) -> None:
        read = WorkRequest(
            request, length, opcode=Opcode.READ, key=key, offset=offset, local_key=local_key, local_offset=to
        )
        self.a.core.post(self.at_a, read)

    def cancel(self, request: int) -> None:
        self.a.core.cancel(self.at_a, request=request, now=self.network.now)

    def run(self, *requests: int, seconds: float = 20.0) -> None:
        """Run until these requests have completed, and 0.2 s more for the last acks."""
        wanted = set(requests)
        self.network.run(until=lambda: wanted <= self.statuses().keys(), seconds=seconds)
        assert wanted <= self.statuses().keys(), f"of {wanted} only {self.statuses()} have ended"
        self.network.run(seconds=0.2)

    def statuses(self) -> dict[int, Status]:
        done = [(event.request, event.status) for event in completed(self.a)]
        assert len({request for request, _ in done}) == len(done), "a request completed twice"
        return dict(done)

    def written(self, offset: int, length: int) -> bytes:
        """Return what lies at b in the registration."""
        return self.b.target[START_B + offset : START_B + offset + length].tobytes()

    def fetched(self, offset: int, length: int) -> bytes:
        """Return what lies at a in the registration."""
        return self.a.target[START_A + offset : START_A + offset + length].tobytes()

    def untouched(self, node: Node, *spans: tuple[int, int]) -> bool:
        """Whether nothing was written at a node but within these spans of its registration."""
        start = START_A if node is self.a else START_B
        rest = node.target.copy()
        for offset, length in spans:
            rest[start + offset : start + offset + length] = 0
        return not rest.any()

    def is_idle(self) -> bool:
        """Whether neither end keeps a message, a request or a packet in flight."""
        for node, number in ((self.a, self.at_a), (self.b, self.at_b)):
            peer = node.core.peer(number)
            send_queue = peer.sender.queue
            sent = peer.sender._inflight
            if peer.receiver.incomplete or send_queue.count or send_queue.responses or send_queue.outstanding_reads:
                return False
            if sent.base != sent.next_psn or peer.sender.inflight_bytes or send_queue.head() is not None:
                return False
        return True

    def received_writes(self) -> list[tuple[int, int]]:
        return [(e.length, e.immediate) for e in self.b.events if isinstance(e, WriteReceived)]

    def released_bytes(self) -> int:
        aborted = [event for event in self.b.events if isinstance(event, MessageAborted)]
        return sum(extent.length for event in aborted for extent in event.released)
