"""A worker's clock, memory, descriptors and endpoint, and the orders from its controller."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import mmap
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np

from devmem.region import Region
from scripts.benches.torture.layout import GuardedMemory
from scripts.benches.torture.plans import EndpointPlan
from scripts.harness.process import anonymous_bytes
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.proto.config import ProtocolConfig
from srd.proto.events import Event, PeerOpened
from srd.secure.config import Keys, Plain, Psk, SecurityConfig

T = TypeVar("T")
UDP_GRO: Final = 104
SOL_UDP: Final = 17
TICK_S: Final = 0.1
LONGEST_TICK_S: Final = 0.5
GRACE_S: Final = 6.0
"""Added to a request's own timeout, for a busy machine."""


class RunningTime:
    """Running time of this process: a tick counts at most LONGEST_TICK_S, so stops and CPU contention hardly count."""

    def __init__(self, note: Callable[..., None]) -> None:
        """`note`: writes an entry of the journal."""
        self.now_s = 0.0
        self._note = note
        self._task = asyncio.ensure_future(self._count())

    async def _count(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            self.now_s += min(now - last, LONGEST_TICK_S)
            last = now

    async def bounded(self, work: Awaitable[T], *, bound_s: float, called: str) -> T | None:
        """Return what becomes of some work; or None if it takes longer, which is a hang: then it is cancelled."""
        future, give_up_s = asyncio.ensure_future(work), self.now_s + bound_s
        while not future.done() and self.now_s < give_up_s:
            await asyncio.wait([future], timeout=TICK_S)
        if future.done():
            return future.result()
        self._note("hang", f"{called} did not return within {bound_s:g} s")
        future.cancel()
        await asyncio.wait([future], timeout=GRACE_S)
        return None

    def stop(self) -> None:
        self._task.cancel()


@dataclass(frozen=True, slots=True)
class Footprint:
    anonymous_bytes: int
    descriptors: tuple[str, ...]
    regions_bytes: int
    """Size of the mapped memfds."""

    @classmethod
    def now(cls) -> Self:
        """Measure, after a garbage collection and a heap trim."""
        gc.collect()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return cls(anonymous_bytes(os.getpid()), tuple(_descriptors()), _regions_bytes())


def _descriptors() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(f"{entry.name} {entry.readlink()}")
    return found


def _regions_bytes() -> int:
    total = 0
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        if "memfd:" in line:
            first, last = line.split()[0].split("-")
            total += int(last, 16) - int(first, 16)
    return total


class Orders:
    """The controller's orders, from stdin: JSON objects, one a line."""

    def __init__(self) -> None:
        self.latest: dict[str, Any] = {}
        """Port and keys of the current receiver."""
        self.finish = asyncio.Event()
        self._known = asyncio.Event()
        self._partial = b""
        os.set_blocking(0, False)
        asyncio.get_running_loop().add_reader(0, self._read)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            data = os.read(0, 1 << 20)
            if not data:
                asyncio.get_running_loop().remove_reader(0)
                self.finish.set()
            *lines, self._partial = (self._partial + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                if order.get("finish"):
                    self.finish.set()
                else:
                    self.latest = order
                    self._known.set()

    async def receiver(self) -> dict[str, Any]:
        """Wait for a receiver; return its port and keys."""
        await self._known.wait()
        return self.latest

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(0)


def start_near_wrap(plan: EndpointPlan) -> None:
    """Start the numbers of all peers of this process just before they wrap.

    A compiled Endpoint cannot be subclassed, but its methods can be replaced.
    """
    parts: Any = Endpoint
    original = parts._on_event  # noqa: SLF001 - the only hook

    def on_event(self: Any, event: Event) -> None:
        original(self, event)
        if isinstance(event, PeerOpened) and event.peer in self._peers:  # before it has sent any data
            _set_numbers(self._peers[event.peer]._core, plan)  # noqa: SLF001

    parts._on_event = on_event  # noqa: SLF001


def _set_numbers(peer: Any, plan: EndpointPlan) -> None:
    """Set the first numbers: PSNs in both directions, the others for sending.

    Data of an encrypted peer may have arrived with the packet that opened it; with a first PSN it was outside of the
    window.
    """
    if plan.first_psn:
        peer.receiver._window.base = plan.first_psn  # noqa: SLF001
        inflight = peer.sender._inflight  # noqa: SLF001
        inflight.base = inflight.next_psn = plan.first_psn
    peer.sender.queue._next_message = plan.first_message  # noqa: SLF001
    if plan.first_sequence:
        for path in peer.sender.paths:
            path.next_sequence = plan.first_sequence
            path.reported_sequence = plan.first_sequence - 1


def set_offloads(endpoint: Endpoint, plan: EndpointPlan) -> None:
    driver: Any = endpoint._engine.driver  # noqa: SLF001 - the only access to the sockets
    for fd, sock in driver._sockets.by_fd.items():  # noqa: SLF001
        if not plan.gro:
            sock.setsockopt(SOL_UDP, UDP_GRO, 0)
        if not plan.gso:
            driver._transmitter._no_gso.add(fd)  # noqa: SLF001


SECURITY: Final[dict[str, Callable[[], SecurityConfig]]] = {
    "keys": Keys,
    "psk": lambda: Psk(bytes(range(32))),
    "plain": Plain,
}


HANDSHAKE_TIMEOUT_S: Final = 2.0
"""Less than the default: the receiver dies and links fail all the time, and a sender that waits does nothing."""


def config(plan: EndpointPlan) -> EndpointConfig:
    return EndpointConfig(
        protocol=ProtocolConfig(
            paths=plan.paths,
            window_packets=plan.window_packets,
            receive_window_bytes=plan.receive_window_bytes,
            max_message_bytes=plan.max_message_bytes,
            rnr_retry=plan.rnr_retry,
            request_timeout_s=plan.request_timeout_s,
            unresponsive_after_s=plan.unresponsive_after_s,
            handshake_timeout_s=HANDSHAKE_TIMEOUT_S,
        ),
        receive_region_bytes=plan.region_bytes,
        chunk_bytes=plan.chunk_bytes,
        datagram_bytes=plan.datagram_bytes,
        busy_poll=plan.busy_poll,
        security=SECURITY[plan.security](),
    )


def mapped(memory: GuardedMemory, directory: Path, *, seed: int) -> Region:
    """Map a file, filled with its guard pattern. It has its name when it is: this process may be killed before."""
    path = memory.path(directory)
    unfilled = path.with_name(f"{path.name}.unfilled")
    size_bytes = -(-memory.size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    region = Region.open(unfilled, size_bytes=size_bytes, writable=True)
    memory.prepare(np.asarray(region.array), seed=seed)
    unfilled.replace(path)
    return region
