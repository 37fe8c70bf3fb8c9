"""One end of a measurement: a queue pair, registered memory, and waiting for completions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from devmem.region import Region
from nitro_emu.perf.exchange import Exchange
from nitro_emu.perf.pattern import Payload
from nitro_emu.perf.plan import Address, PerfError
from nitro_emu.verbs import (
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
    WcOpcode,
    WorkCompletion,
    device_names,
)

INLINE_BYTES: Final = 32
"""Inline data of a WQE of 64 bytes."""

RNR_FOR_EVER: Final = 7
"""A receiver that is slow to post buffers slows a measurement down, and does not end it."""

COMPLETION_TIMEOUT_S: Final = 60.0
"""Longest time without a completion: a peer that has gone is reported by the card within a few seconds."""

SPIN_S: Final = 200e-6
"""Time of polling without a pause: several round trips of 64 bytes where each process has a CPU. Where they share CPUs,
polling keeps the card itself from running; so it sleeps `NAP_S` between later polls."""

NAP_S: Final = 20e-6

_CHECK_S: Final = 0.25
"""Time without a completion after which the other end is looked after, again and again."""

_OPS: Final = SendOps.SEND | SendOps.RDMA_WRITE | SendOps.RDMA_WRITE_WITH_IMM | SendOps.RDMA_READ
_ACCESS: Final = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ

_Found = TypeVar("_Found", Completions, Sequence[WorkCompletion])


@dataclass(frozen=True, slots=True)
class Room:
    """What an end needs."""

    payload_bytes: int
    """Registered memory."""
    sends: int
    """Send requests at a time."""
    receives: int
    """Receive requests at a time."""


class PerfEndpoint:
    """A queue pair in RTS, once `connect` was called, and memory. A context manager."""

    def __init__(self, device: str | None, *, run_dir: Path, exchange: Exchange, room: Room, events: bool) -> None:
        """Open a device, by default the first one. Raises PerfError and VerbsError."""
        self.exchange = exchange
        with ExitStack() as opened:
            self.context = opened.enter_context(Context(_device(device, run_dir=run_dir), directory=run_dir))
            self.pd = ProtectionDomain(self.context)
            self._channel = opened.enter_context(CompletionChannel(self.context)) if events else None
            self.cq = CompletionQueue(self.context, room.sends + room.receives, channel=self._channel)
            options = QpOptions(
                max_send_wr=room.sends,
                max_recv_wr=room.receives,
                max_inline_data=INLINE_BYTES,
                signal_all=True,
                send_ops=_OPS,
            )
            self.qp = QueuePair(self.pd, send_cq=self.cq, recv_cq=self.cq, options=options)
            self.region = Region(room.payload_bytes, name="nitro-perf")
            self.region.populate(0, length=room.payload_bytes)
            self.memory = MemoryRegion(self.pd, self.region, access=_ACCESS)
            self._opened = opened.pop_all()
        self.payload: Payload = self.region.array
        self._qkey = int.from_bytes(os.urandom(4), "big")

    @property
    def address(self) -> Address:
        """How the other end addresses this one."""
        attributes = self.context.attributes
        return Address(
            gid=attributes.gid,
            qpn=self.qp.number,
            qkey=self._qkey,
            rkey=self.memory.rkey,
            memory=self.memory.address,
            mtu_bytes=attributes.mtu_bytes,
        )

    def connect(self, remote: Address) -> None:
        """Make the address handle, and bring the queue pair to RTS. Raises VerbsError."""
        self.remote = remote
        self.ah = AddressHandle(self.pd, gid=remote.gid)
        self.qp.to_rts(qkey=self._qkey, rnr_retry=RNR_FOR_EVER)

    # -- completions --------------------------------------------------------------------------------------------

    def completions(self) -> Sequence[WorkCompletion]:
        """Wait for completions, return at least one. Raises PerfError for one with an error."""
        found = self._wait(lambda: self.cq.poll(16))
        for completion in found:
            if completion.vendor_error:
                raise PerfError(_failure(completion.vendor_error, received=completion.opcode >= WcOpcode.RECV))
        return found

    def completion_array(self, most: int) -> Completions:
        """Wait for completions, return at least one of one queue. Raises PerfError for one with an error."""
        found = self._wait(lambda: self.cq.poll_array(most))
        if found["status"].any():
            failed = found[found["status"] != 0][0]
            raise PerfError(_failure(int(failed["status"]), received=False))
        return found

    def _wait(self, poll: Callable[[], _Found]) -> _Found:
        if len(found := poll()):
            return found
        began = time.monotonic()
        spin_until, check_at = began + SPIN_S, began + _CHECK_S
        while not len(found := poll()):
            if self._channel is not None:
                self.cq.request_notify()
                if len(found := poll()):
                    return found
                self._channel.get_event(timeout_s=_CHECK_S)
            elif time.monotonic() > spin_until:
                time.sleep(NAP_S)
            if (now := time.monotonic()) > check_at:
                self._check(waited_s=now - began)
                check_at = now + _CHECK_S
        return found

    def _check(self, *, waited_s: float) -> None:
        """Raise PerfError if the other end has gone, or the card does nothing."""
        self.exchange.check()
        if waited_s > COMPLETION_TIMEOUT_S:
            raise PerfError(f"no completion for {COMPLETION_TIMEOUT_S:.0f} s; see nitro-card status at both ends")

    def close(self) -> None:
        """Close the device, and all that was made in it."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def check_device(name: str | None, *, run_dir: Path) -> None:
    """Raise PerfError or VerbsError for a device that cannot be opened, before anybody waits for the other end."""
    Context(_device(name, run_dir=run_dir), directory=run_dir).close()


def _device(name: str | None, *, run_dir: Path) -> str:
    if name is not None:
        return name
    if names := device_names(run_dir):
        return names[0]
    raise PerfError(f"{run_dir}: no device there; start a card with nitro-card run, or name its directory: --run-dir")


def _failure(status: int, *, received: bool) -> str:
    try:
        name = CompStatus(status).name
    except ValueError:
        name = "unknown"
    what = "a receive request" if received else "a request"
    return f"{what} ended with status {status}, {name}; see nitro-card logs"
