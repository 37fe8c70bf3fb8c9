"""Crafted packets for a core: of an attacker, or of a peer that violates the protocol."""

from __future__ import annotations

from srd.proto.events import ReceiveResult
from srd.proto.wire.control import Accept, Control, Datagram, Hello, Retry, decode_untrusted
from srd.proto.wire.data import HEADER_BYTES, Burst, GroDatagram, write_headers
from tests.simulation import Network, Node


def give(node: Node, packet: Control | bytes, *, now: float, source: str = "x:1") -> list[Control]:
    """Have the node process one control packet; return the control packets that it sends."""
    data = packet if isinstance(packet, bytes) else packet.encode()
    node.core.handle_packets([], controls=[(data, source, now)], now=now)
    return answers(node, now=now)


def answers(node: Node, *, now: float) -> list[Control]:
    out: list[Control] = []
    for _ in range(1000):
        if (sent := node.core.poll_transmit(now)) is None:
            return out
        if isinstance(sent, Datagram):
            out.append(decode_untrusted(sent.data))
    raise AssertionError("poll_transmit does not end")


def data_packet(
    context: int,
    *,
    psn: int = 0,
    path: int = 0,
    length: int = 100,
    path_sequence: int = 0,
    message: int = 0,
    flags: int = 0,
    offset: int = 0,
    size: int = 1472,
    payload_bytes: int | None = None,
    source: str | None = None,
    key: int = 0,
) -> GroDatagram:
    """A packet of a message of `length` bytes, full for datagrams of `size` bytes."""
    if payload_bytes is None:
        payload_bytes = min(length - offset, size - HEADER_BYTES)
    burst = Burst("", path, path_sequence, context, psn, 1, 0, message, length, 0, offset, key, 0, 0, 0, flags)
    headers = memoryview(bytearray(HEADER_BYTES))
    write_headers(burst, out=headers)
    return GroDatagram(headers, 1, psn * size, payload_bytes, payload_bytes, source or f"x:{path}", 100.0)


def hello(
    *, context: int = 77, size: int = 1472, cookie: bytes = b"", path: int = 0, window_packets: int = 4096
) -> Hello:
    return Hello(context, 1 << 20, 1 << 10, 1 << 20, window_packets, size, cookie, path)


def opened_by_hand(network: Network, *, context: int = 77, source: str = "x:1", size: int = 1472) -> Accept:
    """Open a peer at b as an attacker at `source`, with crafted packets."""
    (retry,) = give(network.b, hello(context=context, size=size), now=network.now, source=source)
    assert isinstance(retry, Retry)
    (accept,) = give(network.b, hello(context=context, size=size, cookie=retry.cookie), now=network.now, source=source)
    assert isinstance(accept, Accept)
    return accept


def is_empty(result: ReceiveResult) -> bool:
    """Whether the owner of the memory has nothing to do."""
    return not (result.kept or result.copies or result.refused_packets)
