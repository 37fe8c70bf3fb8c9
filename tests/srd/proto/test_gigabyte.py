"""The longest messages, in virtual time and without payload: 120,000 packets each, delivered burst by burst."""

from __future__ import annotations

import heapq
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest

from srd.proto.config import MAX_MESSAGE_BYTES, ProtocolConfig
from srd.proto.endpoint.core import EndpointCore
from srd.proto.events import Completion, Event, MessageReceived, PeerOpened, WriteReceived
from srd.proto.wire.control import Datagram
from srd.proto.wire.data import HEADER_BYTES, Burst, GroDatagram, Opcode, write_headers
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from tests.simulation import Keys

DELAY_S = 0.0005
LENGTH = MAX_MESSAGE_BYTES
KEY = 77


class Pipe:
    """Two cores and a delay. Every `lose_every`th burst is lost; copies are recorded as (target, length)."""

    def __init__(self, *, lose_every: int, **config: Any) -> None:
        self.now = 100.0
        self.events: dict[str, list[Event]] = {"a": [], "b": []}
        self.placed: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
        self.cores: dict[str, EndpointCore] = {}
        for name in "ab":
            keys, dice = Keys(), Random(name)
            keys.ranges[KEY] = (0, LENGTH, "lrw")
            self.cores[name] = EndpointCore(
                ProtocolConfig(**config), datagram_bytes=8972, secret=b"s" * 16, accepting=True, memory=keys,
                new_context=partial(dice.getrandbits, 64), rng=dice,
            )  # fmt: skip
        self._lose_every = lose_every
        self._bursts = 0
        self._serial = count()
        self._way: list[tuple[float, int, str, Any]] = []
        self.cores["a"].connect("b:0", sizes=(8972,), now=self.now)
        self.run_until("a", PeerOpened)

    def run_until(self, name: str, kind: type[Event]) -> None:
        """Run until an end has such an event."""
        while not any(isinstance(event, kind) for event in self.events[name]):
            for end in "ab":
                self._serve(end)
            timers = [at for core in self.cores.values() if (at := core.poll_timeout()) is not None]
            self.now = max(min(timers + [item[0] for item in self._way[:1]]), self.now)
            assert self.now < 200.0, "no such event"
            while self._way and self._way[0][0] <= self.now:
                _, _, target, packet = heapq.heappop(self._way)
                arrivals, controls = ([packet], []) if isinstance(packet, GroDatagram) else ([], [packet])
                result = self.cores[target].handle_packets(arrivals, controls=controls, now=self.now)
                self.placed[target] += [(placed.target, placed.length) for placed in result.copies]
            for core in self.cores.values():
                core.handle_timeout(self.now)

    def _serve(self, name: str) -> None:
        core = self.cores[name]
        while (out := core.poll_transmit(self.now)) is not None:
            target, source = "b" if name == "a" else "a", f"{name}:{out.path}"
            packet: Any
            if isinstance(out, Datagram):
                packet = (out.data, source, self.now + DELAY_S)
            else:
                self._bursts += 1
                if self._bursts % self._lose_every == 0:
                    continue
                packet = self._arrival(out, source)
            heapq.heappush(self._way, (self.now + DELAY_S, next(self._serial), target, packet))
        while (event := core.poll_event()) is not None:
            self.events[name].append(event)

    def _arrival(self, burst: Burst, source: str) -> GroDatagram:
        headers = memoryview(bytearray(burst.count * HEADER_BYTES))
        write_headers(burst, out=headers)
        return GroDatagram(
            headers, burst.count, 0, burst.payload_bytes, burst.segment_bytes, source, self.now + DELAY_S
        )

    def of(self, name: str, kind: type) -> list[Any]:
        return [event for event in self.events[name] if isinstance(event, kind)]


def whole(spans: list[tuple[int, int]]) -> bool:
    """Whether the spans are all of a GiB, each byte once."""
    at = 0
    for start, length in sorted(spans):
        if start != at:
            return False
        at += length
    return at == LENGTH


@pytest.mark.parametrize("lose_every", [10**9, 100])
def test_write__of_a_gib(lose_every: int) -> None:
    pipe = Pipe(lose_every=lose_every)
    pipe.cores["a"].post(0, WorkRequest(request=1, length=LENGTH, opcode=Opcode.WRITE, key=KEY, immediate=9))
    pipe.run_until("a", Completion)
    assert pipe.of("a", Completion) == [Completion(0, 1, Status.OK)]
    assert pipe.of("b", WriteReceived) == [WriteReceived(0, LENGTH, 9, KEY)]
    assert whole(pipe.placed["b"])


@pytest.mark.parametrize("lose_every", [10**9, 100])
def test_read__of_a_gib(lose_every: int) -> None:
    pipe = Pipe(lose_every=lose_every)
    pipe.cores["a"].post(0, WorkRequest(request=1, length=LENGTH, opcode=Opcode.READ, key=KEY, local_key=KEY))
    pipe.run_until("a", Completion)
    assert pipe.of("a", Completion) == [Completion(0, 1, Status.OK)]
    assert whole(pipe.placed["a"])


def test_send__of_a_gib_to_a_receiver_with_as_much_memory() -> None:
    """A send starts when all its memory is granted: the receiver needs a GiB."""
    pipe = Pipe(lose_every=100, receive_window_bytes=LENGTH, max_message_bytes=LENGTH)
    pipe.cores["a"].post(0, WorkRequest(request=1, length=LENGTH))
    pipe.run_until("a", Completion)
    assert pipe.of("a", Completion) == [Completion(0, 1, Status.OK)]
    (message,) = pipe.of("b", MessageReceived)
    assert whole([(extent.offset, extent.length) for extent in message.extents])
