"""One queue pair of an application: opened, connected, and its completions, by polling or by events.

An application that polls gives its processor away after each empty poll (`os.sched_yield`): on two processors there are
two applications and two cards, and what is polled for is the work of another process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from nitro_emu.efa.verbs import (
    Access,
    AddressHandle,
    CompletionChannel,
    CompletionQueue,
    Completions,
    CompStatus,
    Context,
    MemoryRegion,
    ProtectionDomain,
    QpOptions,
    QueuePair,
    SendOps,
    WorkCompletion,
)
from scripts.harness.errors import BenchError

QKEY: Final = 0x0C0FFEE0
RNR_FOR_EVER: Final = 7
"""A receiver that is slow to post buffers slows the sender down, and does not end the measurement."""
CQE_BYTES: Final = 16
"""Completions without the sender's GID, as devices write them by default."""
_OPS: Final = SendOps.SEND | SendOps.RDMA_WRITE
_ACCESS: Final = Access.LOCAL_WRITE | Access.REMOTE_WRITE

U64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Address:
    """How the other end addresses an endpoint: what the applications exchange over TCP."""

    gid: str
    """In hexadecimal."""
    qpn: int
    rkey: int
    memory: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON's types."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Room:
    """What an endpoint has room for."""

    payload_bytes: int
    sends: int = 1
    receives: int = 1


class CardEndpoint:
    """A device with one queue pair, in RTS once `connect` was called, and registered memory. A context manager."""

    def __init__(self, run_dir: Path, device: str, *, room: Room, events: bool = False) -> None:
        """`events`: wait for completions of sends asleep instead of polling. Raises VerbsError."""
        with ExitStack() as opened:
            context = opened.enter_context(Context(device, directory=run_dir))
            self.pd = ProtectionDomain(context)
            self._gid = context.attributes.gid
            self._channel = opened.enter_context(CompletionChannel(context)) if events else None
            self.send_cq = CompletionQueue(context, room.sends, channel=self._channel, entry_bytes=CQE_BYTES)
            self.recv_cq = CompletionQueue(context, room.receives, entry_bytes=CQE_BYTES)
            options = QpOptions(max_send_wr=room.sends, max_recv_wr=room.receives, signal_all=True, send_ops=_OPS)
            self.qp = QueuePair(self.pd, send_cq=self.send_cq, recv_cq=self.recv_cq, options=options)
            self.region = Region(room.payload_bytes, name="bench-card")
            self.region.populate(0, length=room.payload_bytes)
            self.memory = MemoryRegion(self.pd, self.region, access=_ACCESS)
            self._opened = opened.pop_all()
        self.payload: npt.NDArray[np.uint8] = self.region.array[: room.payload_bytes]

    @property
    def address(self) -> Address:
        """How the other end addresses it."""
        return Address(self._gid.hex(), self.qp.number, self.memory.rkey, self.memory.address)

    def connect(self, remote: Address) -> None:
        """Bring the queue pair to RTS, towards another end."""
        self.remote = remote
        self.ah = AddressHandle(self.pd, gid=bytes.fromhex(remote.gid))
        self.qp.to_rts(qkey=QKEY, rnr_retry=RNR_FOR_EVER)

    # -- completions ------------------------------------------------------------------------------------------------

    def sent(self, most: int) -> Completions:
        """Wait for completions of sends, asleep if it was opened so. Raises BenchError for one with an error."""
        cq, channel = self.send_cq, self._channel
        if channel is None:
            return take(cq, most)
        while not len(found := cq.poll_array(most)):
            cq.request_notify()
            if len(found := cq.poll_array(most)):
                break
            channel.get_event()
        return require_ok(found)

    # -- requests ---------------------------------------------------------------------------------------------------

    def post_sends(self, offsets: U64Array, *, length: int) -> None:
        """Post SENDs from these offsets of the payload, which are their ids."""
        self.qp.post_sends(
            self.ah,
            remote_qpn=self.remote.qpn,
            remote_qkey=QKEY,
            addresses=offsets + np.uint64(self.memory.address),
            lengths=length,
            lkey=self.memory.lkey,
            wr_ids=offsets,
        )

    def post_receives(self, offsets: U64Array, *, length: int) -> None:
        """Post receive requests for these offsets of the payload, which are their ids."""
        addresses = offsets + np.uint64(self.memory.address)
        self.qp.post_recvs(addresses, lengths=length, lkey=self.memory.lkey, wr_ids=offsets)

    def close(self) -> None:
        """Close the device, and all that was made in it."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def take(cq: CompletionQueue, most: int) -> Completions:
    """Poll until there are completions. Raises BenchError for one with an error."""
    while not len(found := cq.poll_array(most)):
        os.sched_yield()
    return require_ok(found)


def require_ok(found: Completions) -> Completions:
    """Return completions. Raises BenchError if one has an error."""
    if found["status"].any():
        raise failure(int(found["status"][found["status"] != 0][0]))
    return found


def take_singly(cq: CompletionQueue, most: int) -> list[WorkCompletion]:
    """Poll as `take` does, for a program that handles one completion at a time."""
    while not (found := cq.poll(most)):
        os.sched_yield()
    require_all_ok(found)
    return found


def require_all_ok(found: Iterable[WorkCompletion]) -> None:
    """Raise BenchError if a completion has an error."""
    for completion in found:
        if completion.vendor_error:
            raise failure(completion.vendor_error)


def failure(status: int) -> BenchError:
    """Return the error of a completion."""
    name = CompStatus(status).name if status in set(CompStatus) else "unknown"
    return BenchError(f"a request ended with status {status}, {name}")
