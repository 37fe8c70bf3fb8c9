"""A trial of one link setting: numbered packets through a lab, recorded where they enter and where they leave.

`run_settings` is a process of its own (scripts/harness/worker.py), on the host or under User-Mode Linux alike.

The lab is h1 - leaf1 - h2, shaped from leaf1 to h2. h1 sends UDP; packets are recorded at leaf1's end of the first
link, one routing decision before they enter netem, and at h2's interface before any check, including damaged ones. A
packet carries its number eleven times, so that it can be identified in spite of a flipped bit.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from netns.backends.choice import Wanted
from netns.backends.kernel.capabilities import accepts_seeds
from netns.backends.kernel.netlink import in_namespace
from netns.lab.lab import Lab
from netns.netem.shape import Shape
from scripts.benches.fabrics import one_switch
from scripts.benches.fidelity.ring import CapturedFrames, CaptureRing
from scripts.benches.reference_fabric import MTU
from scripts.harness.drops import require_no_relay_drops
from scripts.harness.errors import BenchError

PORT: Final = 7009
HEADER_BYTES: Final = 42  # Ethernet, IPv4, UDP
COPIES: Final = 11
MIN_BYTES: Final = HEADER_BYTES + 8 * COPIES
BATCH: Final = 5  # packets between two readings of the clock
ECT0: Final = 2
SETTLE_S: Final = 0.3
LINK: Final = "leaf1-h2"
INTACT, MARKED = 1, 2


@dataclass(frozen=True, slots=True)
class Recording:
    """A trial's result: packets by number where they entered, and all departures in their order."""

    entered_at_ns: NDArray[np.int64]
    """Shape (packets,)."""

    left_at_ns: NDArray[np.int64]
    """Shape (departures,), like the next two."""

    number: NDArray[np.int64]
    """Number of the packet."""

    flags: NDArray[np.int64]
    """INTACT: no bit flipped; MARKED: congestion experienced."""

    @classmethod
    def load(cls, path: Path) -> Recording:
        with np.load(path) as arrays:
            return cls(**arrays)

    def save(self, path: Path) -> None:
        np.savez(path, **asdict(self))


def run(lab: Lab, shape: Shape, *, packets: int, interval_us: float, length_bytes: int) -> Recording:
    """Send `packets` packets through `shape`, one every `interval_us` on average. Raises BenchError."""
    lab.reshape(LINK, ab=shape)
    entry = in_namespace(lab.netns("leaf1"), lambda: CaptureRing("h1", packets=2 * packets + 100))
    # netem may duplicate every packet; there is no other traffic such as ARP.
    exit_ = in_namespace(lab.netns("h2"), lambda: CaptureRing("leaf1", packets=2 * packets + 100))
    _send(lab, packets=packets, interval_us=interval_us, length_bytes=length_bytes, ect=shape.ecn)
    time.sleep(SETTLE_S + _longest_s(shape, packets=packets, length_bytes=length_bytes))
    before, after = (ring.close().of_length(length_bytes) for ring in (entry, exit_))
    return _recording(before, after, packets=packets)


def _longest_s(shape: Shape, *, packets: int, length_bytes: int) -> float:
    """Return how long after the last packet was sent a packet may still leave."""
    delay_s = (shape.delay_us + 4 * shape.jitter_us) / 1e6
    if shape.slot is not None:
        slot_s = max(shape.slot.max_us, shape.slot.delay_us + 4 * shape.slot.jitter_us) / 1e6
        return delay_s + slot_s * packets / (shape.slot.packets or shape.slot.bytes // length_bytes)
    if not shape.rate_bps:
        return delay_s
    wire_bytes = length_bytes + shape.rate_overhead_bytes
    if shape.cell_bytes:
        wire_bytes = -(-wire_bytes // shape.cell_bytes) * (shape.cell_bytes + shape.cell_overhead_bytes)
    return delay_s + min(shape.limit_packets, packets) * wire_bytes * 8 / shape.rate_bps


def _send(lab: Lab, *, packets: int, interval_us: float, length_bytes: int, ect: bool) -> None:
    """Send at a constant average rate, in bursts of BATCH, as sleeping and clocks are slow under User-Mode Linux."""
    address = (lab.address("h2"), PORT)
    padding = bytes(length_bytes - MIN_BYTES)
    payloads = [number.to_bytes(8, "big") * COPIES + padding for number in range(packets)]
    sink = in_namespace(lab.netns("h2"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    sender = in_namespace(lab.netns("h1"), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with sink, sender:
        sink.bind(address)  # otherwise h2 would answer each packet with an ICMP error
        if ect:
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECT0)
        started_at = time.monotonic()
        for first in range(0, packets, BATCH):
            for payload in payloads[first : first + BATCH]:
                sender.sendto(payload, address)
            early_s = started_at + first * interval_us / 1e6 - time.monotonic()
            if early_s > 0:
                time.sleep(early_s)


def _recording(before: CapturedFrames, after: CapturedFrames, *, packets: int) -> Recording:
    entered = _numbers(before)
    if not np.array_equal(entered, np.arange(packets)):
        raise BenchError(f"{len(entered)} of {packets} packets reached the link in order; the host lost or held some")
    number = _numbers(after)
    known = (number >= 0) & (number < packets)
    if not known.all():
        raise BenchError(f"{(~known).sum()} frames at the far end are not of this trial")
    intact = _intact(after, number)
    marked = (after.head[:, 15] & 3) == 3
    return Recording(before.at_ns, after.at_ns, number, intact.astype(np.int64) * INTACT + marked * MARKED)


def _numbers(frames: CapturedFrames) -> NDArray[np.int64]:
    """Return each packet's number, by majority of its copies, byte by byte."""
    count = min(COPIES, (frames.head.shape[1] - HEADER_BYTES) // 8)
    copies = frames.head[:, HEADER_BYTES : HEADER_BYTES + 8 * count].reshape(-1, count, 8)
    middle: NDArray[np.uint8] = np.sort(copies, axis=1)[:, count // 2]
    return np.ascontiguousarray(middle).view(">i8").reshape(-1).astype(np.int64)


def _intact(frames: CapturedFrames, number: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each frame is as sent, in its recorded part.

    Of the headers only bytes that are equal in all frames are compared. That excludes the identification (bytes 18,
    19), the ECN field (15) with the checksum over it (24, 25), and UDP's checksum, which a kernel does not compute
    while the packet stays within it.
    """
    if not len(number):
        return np.zeros(0, dtype=np.bool_)
    fixed = [place for place in range(HEADER_BYTES) if place not in (15, 18, 19, 24, 25, 40, 41)]
    usual = np.median(frames.head[:, fixed], axis=0).astype(np.uint8)
    headers: NDArray[np.bool_] = (frames.head[:, fixed] == usual).all(axis=1)
    recorded = frames.head.shape[1] - HEADER_BYTES
    count = min(COPIES, recorded // 8)
    wanted = np.repeat(number.astype(">i8").view(np.uint8).reshape(-1, 1, 8), count, axis=1).reshape(-1, 8 * count)
    body: NDArray[np.bool_] = (frames.head[:, HEADER_BYTES : HEADER_BYTES + 8 * count] == wanted).all(axis=1)
    return headers & body


def run_settings(*, name: str, fabric: Wanted, directory: str, settings: Sequence[Mapping[str, Any]]) -> None:
    """Run all on one lab; each leaves DIRECTORY/NAME.npz. Seeds are left out if the kernel does not support them."""
    with Lab.up(one_switch(name=name, mtu=MTU), backend=fabric) as lab:
        seeds = lab.backend == "relay" or accepts_seeds()
        for setting in settings:
            shape = Shape.from_dict(setting["shape"])
            if shape.seed is not None and not seeds:
                continue
            recording = run(
                lab,
                shape,
                packets=setting["packets"],
                interval_us=setting["interval_us"],
                length_bytes=setting["length_bytes"],
            )
            require_no_relay_drops(lab)
            recording.save(Path(directory, f"{setting['name']}.npz"))
