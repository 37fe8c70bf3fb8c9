"""A remote endpoint, as an application sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from devmem.region import Region
from srd.errors import PeerError, UsageError
from srd.message import Message
from srd.proto.path import Path
from srd.proto.peer import PeerCore
from srd.proto.status import Status

if TYPE_CHECKING:
    from srd.endpoint import Endpoint


class Peer:
    """Send to it, receive from it, close it. Made by `Endpoint.connect` and `Endpoint.accept`."""

    def __init__(self, endpoint: Endpoint, core: PeerCore) -> None:
        self.number = core.number
        self.address: tuple[str, int] = core.address[:2]
        self._endpoint = endpoint
        self._core = core  # what there is to see outlives the peer
        self._requests: dict[int, asyncio.Future[Status]] = {}
        self._regions: dict[int, Region] = {}  # keeps the memory of requests that are in flight mapped
        self._next_request = 0
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._has_ended = asyncio.Event()

    def send(self, region: Region, *, offset: int, length: int, immediate: int = 0) -> asyncio.Future[Status]:
        """Send `length` bytes of `region` from `offset` as one message; the result is its completion status.

        The memory must not change before that. Raises RegionError when it is out of bounds, UsageError for a message
        that cannot be, PeerError when the peer is gone.
        """
        region.view(offset, length=length).release()
        if length > self._endpoint.config.protocol.max_message_bytes:
            raise UsageError(
                f"length: {length} bytes is more than a message may have "
                f"({self._endpoint.config.protocol.max_message_bytes}); send it in parts"
            )
        if self.ended:
            raise self.error()
        request = self._next_request
        self._next_request += 1
        future: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
        self._endpoint.post(
            self.number, request=request, address=region.address + offset, length=length, immediate=immediate
        )
        self._requests[request], self._regions[request] = future, region
        return future

    async def recv(self) -> Message:
        """Return the next message, in the order of completion. Raises PeerError when the peer has ended."""
        while not self._messages:
            if self.ended:
                raise self.error()
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()

    async def close(self) -> None:
        """Send what was posted, then part in an orderly way."""
        self._endpoint.close_peer(self.number)
        await self._has_ended.wait()
        while self._messages:
            self._messages.popleft().release()  # nobody will ask for them

    @property
    def ended(self) -> bool:
        """Whether the peer is gone."""
        return self._core.ended is not None

    async def wait_ended(self) -> Status:
        """Wait until the peer is gone; return how it went."""
        await self._has_ended.wait()
        status, _ = self._core.ended or (Status.OK, "")
        return status

    def error(self) -> PeerError:
        """Return the error that says how the peer ended."""
        status, reason = self._core.ended or (Status.OK, "it is open")
        return PeerError(f"{self.address[0]}:{self.address[1]}: {reason}", status=status)

    # -- what there is to see -----------------------------------------------------------------------------------

    @property
    def paths(self) -> list[Path]:
        """The paths towards the peer, with their counters."""
        return self._core.sender.paths if self._core.sender else []

    @property
    def packets_sent(self) -> int:
        """Data packets sent, retransmissions too."""
        return self._core.sender.packets if self._core.sender else 0

    @property
    def packets_retransmitted(self) -> int:
        """Of these, those that had been sent before."""
        return self._core.sender.retransmitted if self._core.sender else 0

    @property
    def packets_received(self) -> int:
        """Data packets heard from the peer, duplicates too."""
        return self._core.receiver.packets

    @property
    def duplicates_received(self) -> int:
        """Of these, those that had been received before."""
        return self._core.receiver.duplicates

    @property
    def landed_bytes(self) -> int:
        """Payload that has landed, of complete and incomplete messages."""
        return self._core.receiver.landed_bytes

    @property
    def longest_gap_s(self) -> float:
        """Longest time between two landings since `start_gap`."""
        return self._core.receiver.longest_gap_s

    def start_gap(self) -> None:
        """Begin to measure the longest gap anew."""
        self._core.receiver.start_gap()

    # -- called by the endpoint ---------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Take a message."""
        self._messages.append(message)
        self._arrived.set()

    def complete(self, request: int, *, status: Status) -> None:
        """End a request."""
        self._regions.pop(request, None)
        future = self._requests.pop(request, None)
        if future is not None and not future.done():
            future.set_result(status)

    def fail_requests(self, status: Status) -> None:
        """End every request that is open."""
        for request in list(self._requests):
            self.complete(request, status=status)

    def end(self) -> None:
        """Be gone; the core says how."""
        self._arrived.set()
        self._has_ended.set()
