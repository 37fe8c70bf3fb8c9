"""One end of a measurement: a queue pair, registered memory, and waiting for completions."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt

from devmem.region import Region
from devmem.registry import Access
from nitro_emu.efa.abi.limits import MAX_RECV_SGE_BYTES
from nitro_emu.efa.verbs import (
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
    RecvRequest,
    SendOp,
    SendRequest,
    Sge,
    VerbsError,
    WorkCompletion,
)
from nitro_emu.errors import NitroError
from srd.perf.errors import PerfError
from srd.perf.sweep.kernel import stoppable

RNR_FOR_EVER: Final = 7
"""A receiver that is slow to post buffers slows a measurement down, and does not end it."""
SPIN_S: Final = 200e-6
"""Time of polling that only yields: several round trips of 64 bytes where each process has a CPU. Where they share
CPUs, polling keeps the card itself from running; so it sleeps `NAP_S` between later polls."""
NAP_S: Final = 20e-6
CHECK_S: Final = 0.25
"""How often who waits for an event looks whether the measurement goes on."""
_ADDRESS: Final = struct.Struct("!16sHIII")
_NOWHERE: Final = np.zeros(1, np.uint64)

U64Array = npt.NDArray[np.uint64]
_T = TypeVar("_T")
_Found = TypeVar("_Found", Completions, list[WorkCompletion])


class Address(NamedTuple):
    """How an end's queue pair is addressed."""

    gid: bytes
    qpn: int
    qkey: int
    mtu_bytes: int
    """Its largest SEND."""
    rkey: int
    """Of the memory where messages land."""

    @property
    def text(self) -> str:
        """The address as one word."""
        return _ADDRESS.pack(*self).hex()

    @classmethod
    def of_untrusted(cls, text: object) -> Self:
        """Return the address that the other end sent. Raises PerfError, and nothing else."""
        try:
            return cls(*_ADDRESS.unpack(bytes.fromhex(str(text))))
        except (ValueError, struct.error):
            raise PerfError(f"the other end sent no address of a queue pair but {text!r:.200}") from None


@dataclass(frozen=True, slots=True)
class QueuePairRoom:
    """What an end needs."""

    sends: int
    """Requests at a time."""
    receives: int
    """Receive requests at a time."""
    message_bytes: int
    """The longest message."""
    slots: int
    """Where messages land; those beyond land in the first one, one at a time."""


class QueuePairEnd:
    """A queue pair, in RTS once `connect` was called, and memory, which is addressed by offsets.

    A thread at a time uses it, by `run`.
    """

    remote: Address

    def __init__(
        self, stack: ExitStack, room: QueuePairRoom, *, device: str, run_dir: Path, events: bool, naps: bool = True
    ) -> None:
        """Open a device; `stack` closes it. Raises VerbsError.

        `naps`: sleep between polls after SPIN_S. Without, it only yields, which is right under SCHED_RR (sched(7)).
        """
        self.room = room
        self._naps = naps
        self.open = 0
        """Requests that have not completed."""
        self._stopped = threading.Event()
        context = stack.enter_context(Context(device, directory=run_dir))
        self._pd = ProtectionDomain(context)
        self._channel = stack.enter_context(CompletionChannel(context)) if events else None
        self._sent = CompletionQueue(context, room.sends, channel=self._channel)
        self._received = CompletionQueue(context, room.receives, channel=self._channel)
        options = QpOptions(max_send_wr=room.sends, max_recv_wr=room.receives, signal_all=True)
        self._qp = QueuePair(self._pd, send_cq=self._sent, recv_cq=self._received, options=options)
        region = Region(room.slots * room.message_bytes, name="efa-perf")
        region.populate(0, length=region.size_bytes)
        self.memory = self.register(region, access=Access.LOCAL_WRITE | Access.REMOTE_WRITE)
        self.rows: npt.NDArray[np.uint8] = region.array[: room.slots * room.message_bytes].reshape(room.slots, -1)
        device_is, qkey = context.attributes, int.from_bytes(os.urandom(4), "big")
        self.address = Address(device_is.gid, self._qp.number, qkey, device_is.mtu_bytes, self.memory.rkey)

    def connect(self, remote: Address) -> None:
        """Bring the queue pair to RTS, and post the receive requests. Raises VerbsError."""
        self.remote = remote
        self._ah = AddressHandle(self._pd, gid=remote.gid)
        self._qp.to_rts(qkey=self.address.qkey, rnr_retry=RNR_FOR_EVER)
        numbers = np.arange(self.room.receives, dtype=np.uint64)
        length, lkey = min(self.room.message_bytes, MAX_RECV_SGE_BYTES), self.memory.lkey
        self._receives = [
            RecvRequest(number, (Sge(offset, length, lkey),))
            for number, offset in enumerate(self._slot_offsets(numbers).tolist())
        ]
        self.receive(numbers)

    def register(
        self,
        region: Region,
        *,
        offset: int = 0,
        length: int | None = None,
        access: Access,
        peers: Sequence[Any] = (),  # noqa: ARG002 - there is one
    ) -> Registered:
        """Register memory, for the only peer. Raises VerbsError."""
        return Registered(self._pd, region, offset=offset, length=length, access=access, iova=0)

    def deregister(self, registration: Registered) -> None:
        """Withdraw it; if requests use it still, that is left to the device's end."""
        with suppress(VerbsError):
            registration.close()

    # -- in a thread --------------------------------------------------------------------------------------------------

    async def run(self, work: Callable[[], _T]) -> _T:
        """Run what uses the queue pair in a thread; when cancelled, stop its waiting. Raises PerfError."""
        self._stopped.clear()
        try:
            return await stoppable(work, stop=self._stopped.set)
        except NitroError as error:
            raise PerfError(str(error)) from error

    def post(
        self,
        op: SendOp,
        offsets: U64Array,
        *,
        length: int,
        memory: Registered,
        remote_offsets: U64Array = _NOWHERE,
        rkey: int = 0,
        immediate: int | None = None,
    ) -> None:
        """Post as many requests as there are offsets; wait for room first. Raises PerfError, VerbsError."""
        while self.open + len(offsets) > self.room.sends:
            self.completed()
        self.open += len(offsets)
        self._qp.post_rdma(
            op,
            self._ah,
            remote_qpn=self.remote.qpn,
            remote_qkey=self.remote.qkey,
            addresses=offsets,
            lengths=length,
            lkey=memory.lkey,
            remote_addresses=remote_offsets,
            rkey=rkey,
            wr_ids=offsets,
            immediate=immediate,
        )

    def receive(self, numbers: U64Array) -> None:
        """Post receive requests with these numbers, each for the slot of its number."""
        length = min(self.room.message_bytes, MAX_RECV_SGE_BYTES)
        self._qp.post_recvs(self._slot_offsets(numbers), lengths=length, lkey=self.memory.lkey, wr_ids=numbers)

    def _slot_offsets(self, numbers: U64Array) -> U64Array:
        return np.where(numbers < self.room.slots, numbers, 0) * np.uint64(self.room.message_bytes)

    def post_one(self, request: SendRequest) -> None:
        """Post a SEND, in less time than `post` takes; wait for room first. Raises PerfError, VerbsError."""
        while self.open >= self.room.sends:
            self.completed()
        self.open += 1
        self._qp.post_send(request)

    def send_request(self, offset: int, *, length: int, memory: Registered) -> SendRequest:
        """Return a SEND for `post_one`."""
        sge = Sge(offset, length, memory.lkey)
        return SendRequest(self._ah, self.remote.qpn, self.remote.qkey, wr_id=offset, sges=(sge,))

    def receive_one(self, number: int) -> None:
        """Post a receive request, as `receive` does, in less time."""
        self._qp.post_recv(self._receives[number])

    def received_one(self) -> WorkCompletion:
        """Wait for a message, in less time than `received`. Raises PerfError for one with an error."""
        (found,) = self._until(self._received, lambda: self._received.poll(1))
        if found.vendor_error:
            raise _failure(found.vendor_error)
        return found

    def completed(self) -> int:
        """Wait for completions of requests; return how many. Raises PerfError for one with an error."""
        count = len(self._take(self._sent, most=self.room.sends))
        self.open -= count
        return count

    def polled(self) -> U64Array:
        """Return the offsets of requests that have completed, without waiting. Raises PerfError as `completed` does."""
        found = _require_ok(self._sent.poll_array(self.room.sends))
        self.open -= len(found)
        return found["wr_id"]

    def drain(self) -> None:
        """Wait for all of them."""
        while self.open:
            self.completed()

    def received(self) -> Completions:
        """Wait for messages. Raises PerfError for one with an error."""
        return self._take(self._received, most=self.room.receives)

    def _take(self, cq: CompletionQueue, *, most: int) -> Completions:
        return _require_ok(self._until(cq, lambda: cq.poll_array(most)))

    def _until(self, cq: CompletionQueue, poll: Callable[[], _Found]) -> _Found:
        """Poll until there is something."""
        if len(found := poll()):
            return found
        spin_until = time.monotonic() + SPIN_S
        while not len(found := poll()):
            if self._stopped.is_set():
                raise PerfError("the measurement was ended")
            if self._channel is not None:
                cq.request_notify()
                if len(found := poll()):
                    break
                self._channel.get_event(timeout_s=CHECK_S)
            elif self._naps and time.monotonic() > spin_until:
                time.sleep(NAP_S)
            else:
                os.sched_yield()
        return found


def _require_ok(found: Completions) -> Completions:
    """Return completions. Raises PerfError if one has an error."""
    if found["status"].any():
        raise _failure(int(found["status"][found["status"] != 0][0]))
    return found


def _failure(status: int) -> PerfError:
    name = CompStatus(status).name if status in set(CompStatus) else "unknown"
    return PerfError(f"a request ended with status {status}, {name}; see nitro-card logs")


class Registered(MemoryRegion):
    """Memory, as `srd.perf.sweep` knows it."""

    @property
    def remote_key(self) -> int:
        """What the other end names it by."""
        return self.rkey
