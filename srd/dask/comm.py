"""A comm: one peer, and what distributed expects of its end."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, ClassVar

import dask
from dask.utils import parse_bytes
from distributed.comm.core import Comm, CommClosedError
from distributed.comm.utils import from_frames, to_frames

from srd import Peer, PeerError
from srd.dask.endpoints import SharedEndpoint
from srd.dask.frames import EndedError, PeerFrames


def _abort(loop: asyncio.AbstractEventLoop, frames: PeerFrames) -> None:
    """End a comm that nobody has closed; from any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(frames.abort)


class SrdComm(Comm):  # type: ignore[misc] # distributed has no types here
    """One peer of a shared endpoint, which is left when the peer has ended."""

    max_shard_size: ClassVar[int] = parse_bytes(dask.config.get("distributed.comm.shard"))

    def __init__(self, peer: Peer, shared: SharedEndpoint, *, local: str, remote: str, deserialize: bool) -> None:
        super().__init__(deserialize=deserialize)
        self._local_addr, self._peer_addr = local, remote  # names that distributed reads
        self._closed = False
        self._frames = PeerFrames(peer, on_ended=shared.leave)
        self._finalizer = weakref.finalize(self, _abort, asyncio.get_running_loop(), self._frames)
        self._finalizer.atexit = False

    @property
    def local_address(self) -> str:  # noqa: D102
        return self._local_addr

    @property
    def peer_address(self) -> str:  # noqa: D102
        return self._peer_addr

    async def read(self, deserializers: Any = None) -> Any:
        """Return the next message. Raises CommClosedError. A cancelled read ends the comm, as part may be lost."""
        if self._closed:
            raise CommClosedError(f"{self!r} is closed")
        try:
            frames = await self._frames.read()
        except EndedError as error:
            self.abort()
            raise CommClosedError(f"in {self!r}: {error}") from error
        except BaseException:
            self.abort()
            raise
        try:
            return await from_frames(
                frames, deserialize=self.deserialize, deserializers=deserializers, allow_offload=self.allow_offload
            )
        except EOFError as error:
            self.abort()
            raise CommClosedError("truncated data") from error

    async def write(self, msg: Any, serializers: Any = None, on_error: str = "message") -> int:
        """Post a message; return its bytes. It does not wait for the reader. Raises CommClosedError."""
        if self.closed():
            raise CommClosedError(f"{self!r} is closed")
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={"sender": self.local_info, "recipient": self.remote_info, **self.handshake_options},
            frame_split_size=self.max_shard_size,
        )
        try:
            return self._frames.write(frames)
        except PeerError as error:
            raise CommClosedError(f"in {self!r}: {error}") from error
        except BaseException:
            self.abort()
            raise

    async def close(self) -> None:
        """Let what was written arrive, then end."""
        if not self._closed:
            self._closed = True
            self._finalizer.detach()
            self._frames.drop()
            await self._frames.peer.close()
            self._frames.drop()

    def abort(self) -> None:
        """End at once."""
        if not self._closed:
            self._closed = True
            self._finalizer.detach()
            self._frames.abort()

    def closed(self) -> bool:
        """Whether it is closed, by either end."""
        return self._closed or self._frames.is_over
