"""Lists of frames, in order, over the messages of one peer, which have none.

1. A list is a head, which has the number of frames, their sizes, and the contents of small ones; and each larger frame
   by itself. Each is sent in parts of `PART_BYTES` as one message. The immediate counts the messages of a peer, modulo
   2^32: the receiver takes them in that order.
2. A part of a larger frame is sent from where it lies, and copied once, from where it landed to the frame's own
   memory: what is unpickled from a frame refers to it for long.
3. Writing posts, and does not wait for the reader. A message that is not read keeps its place in the receive region,
   and so the sender's credit: this is what holds a writer back.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from distributed.utils import ensure_memoryview

from srd import Message, MessageBatch, Peer, Status

PART_BYTES: Final = 1 << 20
SMALL_BYTES: Final = 64 << 10
"""A copy of so much costs little beside a message of its own."""
MAX_FRAMES: Final = 1 << 20
MAX_BYTES: Final = 1 << 40
"""Of a frame, and of a head: more is no frame of distributed's, which splits them at 64 MiB."""
_HEAD: Final = struct.Struct("!QI")  # bytes of the whole head, number of frames; then a u64 for each frame's size
_NUMBERS: Final = 1 << 32


class EndedError(Exception):
    """The peer has ended, or has sent what is no list of frames."""


class PeerFrames:
    """What passes through one peer. Made before anything arrives.

    `on_ended` is called once: when the peer has ended, and nothing that came of it is left to be read, since its memory
    is the endpoint's.
    """

    def __init__(self, peer: Peer, *, on_ended: Any) -> None:
        self.peer = peer
        self._tell_ended = on_ended
        self._sent = self._taken = 0
        self._posted: dict[int, Any] = {}  # what keeps the memory, by request
        self._arrived: dict[int, Message] = {}
        self._waiting: asyncio.Future[None] | None = None
        self._has_left = False
        peer.attach(self)

    @property
    def is_over(self) -> bool:
        """Whether the peer has ended, and nothing is left to be read."""
        return self.peer.ended and self._taken % _NUMBERS not in self._arrived

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, frames: Sequence[Any]) -> int:
        """Post a list of frames, which stay as they are until the peer has them. Raises PeerError."""
        views = [ensure_memoryview(frame) for frame in frames]
        sizes = [view.nbytes for view in views]
        small = [view for view in views if view.nbytes <= SMALL_BYTES]
        length = _HEAD.size + 8 * len(views) + sum(view.nbytes for view in small)
        head = b"".join((_HEAD.pack(length, len(views)), struct.pack(f"!{len(views)}Q", *sizes), *small))
        self._post(memoryview(head))
        for view in views:
            if view.nbytes > SMALL_BYTES:
                self._post(view)
        return sum(sizes)

    def _post(self, content: memoryview) -> None:
        array = np.frombuffer(content, np.uint8)
        address = int(array.ctypes.data)
        for start in range(0, len(array), PART_BYTES):
            length = min(PART_BYTES, len(array) - start)
            request = self.peer.post(address + start, length=length, immediate=self._sent % _NUMBERS)
            self._posted[request] = array
            self._sent += 1

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self) -> list[memoryview]:
        """Return the next list of frames, each writable. Raises EndedError."""
        try:
            return await self._read()
        except MemoryError as error:  # for what was announced: pages are not touched before they are filled
            raise EndedError("frames of more bytes than there is memory for") from error
        finally:
            self._leave()

    async def _read(self) -> list[memoryview]:
        with await self._next() as message:
            first = message.gather()
        if len(first) < _HEAD.size:
            raise EndedError("a head of too few bytes")
        head_bytes, count = _HEAD.unpack_from(first)
        if count > MAX_FRAMES or not max(_HEAD.size + 8 * count, len(first)) <= head_bytes <= MAX_BYTES:
            raise EndedError("a head that cannot be")
        head = memoryview(bytearray(head_bytes))
        head[: len(first)] = first
        await self._fill(head, at=len(first))
        sizes = struct.unpack_from(f"!{count}Q", head, _HEAD.size)
        at = _HEAD.size + 8 * count
        if at + sum(size for size in sizes if size <= SMALL_BYTES) != head_bytes or max(sizes, default=0) > MAX_BYTES:
            raise EndedError("a head whose frames do not fill it")
        frames = []
        for size in sizes:
            if size <= SMALL_BYTES:
                frames.append(head[at : at + size])
                at += size
            else:
                frame = np.empty(size, np.uint8).data
                await self._fill(frame, at=0)
                frames.append(frame)
        return frames

    async def _fill(self, target: memoryview, *, at: int) -> None:
        while at < len(target):
            with await self._next() as message:
                if not 0 < message.length <= len(target) - at:
                    raise EndedError(f"a message of {message.length} bytes where {len(target) - at} are missing")
                message.gather(target[at:])
                at += message.length

    async def _next(self) -> Message:
        """Return the next message, which is to be released."""
        number = self._taken % _NUMBERS
        while number not in self._arrived:
            if self.peer.ended:
                raise EndedError(str(self.peer.error()))
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        self._taken += 1
        return self._arrived.pop(number)

    # -- what the peer tells ------------------------------------------------------------------------------------------

    def on_message(self, message: Message | MessageBatch) -> None:
        """Take a message, or several that arrived together."""
        left = True
        while left:
            single, left = (message, False) if isinstance(message, Message) else message.take()
            if single.immediate is None or single.immediate in self._arrived:
                single.release()
                self.peer.fail("a message without its number, or with one that was there")
                return
            self._arrived[single.immediate] = single
        self._wake()

    def on_completion(self, request: int, *, status: Status) -> None:  # noqa: ARG002 - its end says what failed
        """Let the memory of a message go."""
        self._posted.pop(request, None)

    def on_ended(self) -> None:
        """Wake the reader."""
        self._posted.clear()
        self._wake()
        self._leave()

    def _leave(self) -> None:
        if self.peer.ended and not self._arrived and not self._has_left:
            self._has_left = True
            self._tell_ended()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def drop(self) -> None:
        """Release what nobody will read."""
        for message in self._arrived.values():
            message.release()
        self._arrived.clear()
        self._leave()

    def abort(self) -> None:
        """End at once."""
        self.drop()
        self.peer.abort()
