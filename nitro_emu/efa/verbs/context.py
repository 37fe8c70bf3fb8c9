"""Which devices there are, and a device that this process has opened.

A card has one Unix socket for each device, in one directory: DEVICE.sock, and control.sock for administration, which is
no device. A lab with several cards gives each its own directory; $NITRO_CARD_DIR names the one that this process uses.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import weakref
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from nitro_emu.closing import Closing
from nitro_emu.efa.abi import commands, enums, replies
from nitro_emu.efa.abi.admin import AenqEntry
from nitro_emu.efa.abi.enums import DeviceCap
from nitro_emu.efa.verbs.link import Answer, CardConnection, expect
from nitro_emu.efa.verbs.recv_queue import RecvRing
from nitro_emu.efa.verbs.send_queue import SendRing
from nitro_emu.errors import VerbsError
from nitro_emu.run_directory import remedy

DIRECTORY_VARIABLE: Final = "NITRO_CARD_DIR"
DEFAULT_DIRECTORY: Final = Path("/run/nitro-card")
_SUFFIX: Final = ".sock"
_NO_DEVICE: Final = "control"


def card_directory() -> Path:
    """Return the directory of the card's sockets."""
    return Path(os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY)


def device_names(directory: Path | None = None) -> list[str]:
    """Return the devices' names in order; none without a card. `directory`: by default, `card_directory()`."""
    directory = directory or card_directory()
    try:
        found = sorted(path for path in directory.iterdir() if path.suffix == _SUFFIX)
    except OSError:
        return []
    return [path.stem for path in found if path.stem != _NO_DEVICE and _is_socket(path)]


def socket_path(name: str, *, directory: Path | None = None) -> Path:
    """Return the socket of a device. Raises VerbsError: no such device (ENODEV)."""
    directory = directory or card_directory()
    if name not in device_names(directory):
        raise VerbsError(
            errno.ENODEV,
            f"{name!r} is no device in {directory}; {remedy(directory, option=f'${DIRECTORY_VARIABLE}')}",
        )
    return directory / (name + _SUFFIX)


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """What a device can do."""

    vendor_part_id: int
    caps: DeviceCap
    max_rdma_bytes: int
    gid: bytes
    mtu_bytes: int
    """The largest SEND: the payload of one packet."""
    queue: replies.QueueAttr
    wide_inline_bytes: int
    """Inline data in a WQE of 128 bytes; 0 if it has none."""


@dataclass(frozen=True, slots=True)
class Queues:
    """A queue pair's queues. They hold no reference to it, so that a forgotten queue pair is collected."""

    send: SendRing
    recv: RecvRing


class Context(Closing):
    """An open device: a connection to its card. A context manager; it is also closed when nothing refers to it.

    Raises VerbsError for a device that does not exist (ENODEV) or that may not be opened.
    """

    def __init__(self, name: str, *, directory: Path | None = None) -> None:
        self.name = name
        self.link = CardConnection(socket_path(name, directory=directory))
        self._close = weakref.finalize(self, self.link.close)
        self.queues: dict[int, Queues] = {}
        self._generations = itertools.count(1)
        try:
            self.attributes = self._query_attributes()
            self._enable_events()
        except BaseException:
            self.close()
            raise

    def _query_attributes(self) -> DeviceAttributes:
        device = expect(self._feature(enums.Feature.DEVICE_ATTR), kind=replies.DeviceAttr)
        network = expect(self._feature(enums.Feature.NETWORK_ATTR), kind=replies.NetworkAttr)
        wide_inline_bytes = 0
        if device.supported_features >> enums.Feature.QUEUE_ATTR_2 & 1:
            more = expect(self._feature(enums.Feature.QUEUE_ATTR_2), kind=replies.QueueAttr2)
            wide_inline_bytes = more.inline_buf_size_ex
        return DeviceAttributes(
            vendor_part_id=device.device_version,
            caps=DeviceCap(device.device_caps),
            max_rdma_bytes=device.max_rdma_size,
            gid=network.addr,
            mtu_bytes=network.mtu,
            queue=expect(self._feature(enums.Feature.QUEUE_ATTR), kind=replies.QueueAttr),
            wide_inline_bytes=wide_inline_bytes,
        )

    def _enable_events(self) -> None:
        supported = expect(self._feature(enums.Feature.AENQ_CONFIG), kind=replies.AenqConfig).supported_groups
        wanted = sum(1 << group for group in enums.AenqGroup) & supported
        self.link.do(commands.SetFeature(feature_id=enums.Feature.AENQ_CONFIG, enabled_groups=wanted))

    def _feature(self, feature: enums.Feature) -> Answer:
        return self.link.ask(commands.GetFeature(feature_id=feature), feature=feature)

    def next_generation(self) -> int:
        """Return a number for a queue pair that tells it from earlier ones with the same number."""
        return next(self._generations)

    def query_stats(self) -> dict[str, int]:
        """Return the device's counters, of all programs that use it, under the names that the kernel's driver has."""
        counters: dict[str, int] = {}
        for kind in enums.StatsType:
            reply = self.link.ask(commands.GetStats(stats_type=kind), stats_type=kind).reply
            prefix = "rdma_" if kind in {enums.StatsType.RDMA_READ, enums.StatsType.RDMA_WRITE} else ""
            counters.update({prefix + name: value for name, value in asdict(reply).items()})
        return counters

    def take_events(self) -> list[AenqEntry]:
        """Return the asynchronous events since the last call, the oldest first; only the last 64 are kept."""
        events = self.link.events
        return [events.popleft() for _ in range(len(events))]

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return not self._close.alive

    def close(self) -> None:
        """Close the device, and with it all that was created in it. Everything blocked in it wakes with an error."""
        self._close()
