"""A lost packet of one stream delays no other: streams without I/O over protocol cores, in virtual time.

The same bytes as one stream are the counterexample: there, what follows the loss waits for it.
"""

from __future__ import annotations

import pytest

from netns.netem.shape import Shape
from scripts.benches.reference_fabric import RECEIVER, RTT_S, SENDER, fabric
from srd.proto.config import ProtocolConfig
from srd.proto.events import Event, MessageReceived
from srd.proto.wire.data import Burst
from srd.sim.simulation import Connection, Simulation
from srd.streams.stream import Stream
from srd.streams.wire import Frame, FrameKind, frame_untrusted, key
from tests.srd.loopback import content

COUNT = 8
EACH_BYTES = 48 << 10
PIECE_BYTES = 8 << 10
LOSER = 2
"""The place of the part whose second message loses its only packet, once."""
FAST = Shape(delay_us=RTT_S / 4 * 1e6, rate_bps=10_000_000_000, limit_packets=10_000)
"""A packet takes 7 us: what else the loss changes, such as the choice of paths, is small beside a round trip."""
SEED = 21


class Transfer:
    """Parts of some bytes, each a stream of its own, or all one stream; when each part has been read."""

    def __init__(self, *, streams: int, lossy: bool) -> None:
        self.size_bytes = COUNT * EACH_BYTES // streams
        self.parts = [content(self.size_bytes, seed=number) for number in range(streams)]
        self.sending = [self._stream(number) for number in range(streams)]
        self.receiving = [self._stream(number) for number in range(streams)]
        self.got = [b""] * streams
        self.read_at_ns = [0] * COUNT
        self.lost = 0
        topology = fabric(spines=4, name="streams", seed=SEED, change=lambda *_: FAST)
        self.simulation = Simulation(topology, config=ProtocolConfig(), seed=SEED)
        (self.connection,) = self.simulation.connect([(SENDER, RECEIVER)])
        self.connection.destination.on_event = self._on_event
        if lossy:
            self.connection.source.loses = self._loses

    def _stream(self, number: int) -> Stream:
        return Stream(2 * number, window_bytes=COUNT * EACH_BYTES, piece_bytes=PIECE_BYTES)

    def run(self) -> list[float]:
        """Return when each part had been read, in seconds."""
        started_ns = self.simulation.now_ns
        for stream, part in zip(self.sending, self.parts, strict=True):
            limit = Frame(FrameKind.LIMIT, stream.number, COUNT * EACH_BYTES)
            stream.on_frame_untrusted(limit, b"")
            stream.write(part)
        for _ in range(self.size_bytes // PIECE_BYTES):  # in turns, one message of each
            for stream in self.sending:
                self._post(stream, self.connection)
        self.connection.source.serve()
        assert self.simulation.run(seconds=1, done=lambda: all(self.read_at_ns))
        assert self.got == self.parts
        return [(at_ns - started_ns) / 1e9 for at_ns in self.read_at_ns]

    def _post(self, stream: Stream, connection: Connection) -> None:
        message = stream.poll()
        assert message is not None
        marked = key(message.kind, stream=stream.number)
        connection.source.post(connection.peer, length=len(message.payload), immediate=message.offset, key=marked)

    def _loses(self, burst: Burst, index: int) -> bool:
        """Whether it is the first packet of the chosen part's second message, for the first time."""
        number, at = (burst.key & 0xFF) // 2, burst.immediate
        part = number if len(self.parts) > 1 else at // EACH_BYTES
        chosen = part == LOSER and at % EACH_BYTES == PIECE_BYTES and burst.offset == 0 and index == 0
        if not chosen or self.lost:
            return False
        self.lost += 1
        return True

    def _on_event(self, event: Event) -> None:
        if not isinstance(event, MessageReceived):
            return
        frame = frame_untrusted(event.key, immediate=event.immediate, length=event.length)
        number = frame.stream // 2
        stream = self.receiving[number]
        stream.on_frame_untrusted(frame, self.parts[number][frame.offset : frame.offset + event.length])
        while (data := stream.take()) is not None:
            before = len(self.got[number])
            self.got[number] += data
            for part in range(before // EACH_BYTES, len(self.got[number]) // EACH_BYTES):
                self.read_at_ns[number + part] = self.simulation.now_ns


def delays_s(*, streams: int) -> list[float]:
    """How much later each part is read if one packet is lost."""
    lossy = Transfer(streams=streams, lossy=True)
    with_loss = lossy.run()
    assert lossy.lost == 1
    without = Transfer(streams=streams, lossy=False).run()
    return [late - early for late, early in zip(with_loss, without, strict=True)]


def test_streams__a_loss_in_one_delays_no_other() -> None:
    delays = delays_s(streams=COUNT)
    assert delays[LOSER] > RTT_S / 2
    others = delays[:LOSER] + delays[LOSER + 1 :]
    assert max(others) < RTT_S / 10, delays


@pytest.mark.parametrize("part", range(LOSER + 1, COUNT))
def test_streams__in_one_stream_a_loss_delays_all_behind_it(part: int) -> None:
    """So the other test would see it if streams were one order."""
    assert delays_s(streams=1)[part] > RTT_S / 10
