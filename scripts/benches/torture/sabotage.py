"""Past defects to reintroduce, which the torture bench must detect (for tests only).

Each replaces a part of the sources in a worker, before its endpoint is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from srd.file_transfer.sending import FileSender
from srd.io import rx
from srd.io.rx import RxRing
from srd.io.rx_buffers import RxBuffers
from srd.peer import Peer
from srd.proto.endpoint.core import EndpointCore
from srd.proto.endpoint.peer_state import PeerState
from srd.proto.recv import receiver as proto_receiver
from srd.proto.recv.receiver import Receiver
from srd.proto.wire.data import HEADER_BYTES
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure import packets


def _replace(where: Any, **parts: Any) -> None:
    for name, part in parts.items():
        if not hasattr(where, name):
            raise AttributeError(f"{where} has no {name} to replace")
        setattr(where, name, part)


def layout_overlaps() -> None:
    """Change the expected datagram size of slots without a new layout."""

    def lay_out(self: Any, *, train_bytes: int) -> None:
        self.train_bytes = train_bytes

    _replace(RxBuffers, lay_out=lay_out)
    _replace(rx, LAYOUT_BYTES=0)


def headers_remain_in_payload() -> None:
    """Do not compact the payloads of a train of small datagrams: headers remain between them."""
    original = RxRing._receive_small  # noqa: SLF001 - the defect is internal

    def receive_small(self: Any, batch: Any, slot: int, length: int, *rest: Any, **options: Any) -> None:
        offset = self.buffers.cursors[slot]
        landed = self._region.array[offset : offset + length - HEADER_BYTES]
        before = landed.copy()
        original(self, batch, slot, length, *rest, **options)
        landed[:] = before

    _replace(RxRing, _receive_small=receive_small)


def incomplete_messages_are_unbounded() -> None:
    """Accept any number of packets that begin a message, even without payload."""

    def has_consistent_layout(_self: Any, burst: Any, *, offset: int) -> bool:
        return bool(offset + burst.payload_bytes <= burst.length)

    def begin(_self: Any, _size_bytes: int, *, messages: int) -> None:
        """Count nothing, however many `messages`."""

    _replace(Receiver, has_consistent_layout=has_consistent_layout, _begin=begin)
    _replace(proto_receiver, INCOMPLETE_BEYOND_WINDOW=1 << 40)


def failed_chunks_are_ignored() -> None:
    """Treat a chunk whose request failed as if it had arrived."""
    FileSender._failed = property(lambda _self: None, lambda _self, _status: None)  # type: ignore[assignment]  # noqa: SLF001


def regions_close_in_flight() -> None:
    """Do not pin the memory of a request."""
    original = Peer._post  # noqa: SLF001

    def post(self: Any, wr: WorkRequest, *, view: memoryview | None) -> asyncio.Future[Status]:
        future: asyncio.Future[Status] = original(self, wr, view=view)
        if view is not None:
            view.release()
        return future

    _replace(Peer, _post=post)


def a_train_is_its_first_packets() -> None:
    """Believe each header of a train that the keys of the first one have opened."""

    def continued(_packets: memoryview, *, stride: int, count: int) -> int:
        del stride
        return count

    def peer_of(self: Any, burst: Any, *, keys: int | None) -> Any:
        del keys
        peer = self._by_context.get(burst.context)
        return None if peer is None or peer.state is PeerState.ENDED else peer

    _replace(packets, continued_untrusted=continued)
    _replace(EndpointCore, _peer_of=peer_of)


SABOTAGES: Final[dict[str, Callable[[], None]]] = {
    "c1": layout_overlaps,
    "c2": headers_remain_in_payload,
    "h3": incomplete_messages_are_unbounded,
    "h6": failed_chunks_are_ignored,
    "h7": regions_close_in_flight,
    "s1": a_train_is_its_first_packets,
}
