"""A volume server as a process, on a disk that fails: DIRECTORY HOST PORT KEY SEED [early].

KEY in hexadecimal digits; `early`, the sabotage: it acknowledges writes that are not in its log yet. After SIGUSR1 the
kernel drops all that is sent to it, until SIGUSR2.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import socket
import stat
import sys
from contextlib import suppress
from functools import partial
from os import fstat
from pathlib import Path
from random import Random

from netns.base.output import emit
from nitro_emu.ebs.server import replica
from nitro_emu.ebs.server.entries import BlockKind
from nitro_emu.ebs.server.service import ServerConfig, serve
from nitro_emu.ebs.server.store import StoreError
from nitro_emu.ebs.server.wal import WalRecord
from srd import Psk
from tests.nitro_emu.ebs.faulty_disk import FaultyDisk

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27
RETURN_NOTHING = (ctypes.c_uint16 * 4)(0x06, 0, 0, 0)
"""One instruction of the classic BPF: take 0 bytes of each packet (linux/filter.h)."""
FILTER = (1).to_bytes(8, "little") + ctypes.addressof(RETURN_NOTHING).to_bytes(8, "little")
"""`struct sock_fprog`."""


def datagram_sockets() -> list[socket.socket]:
    """Return copies of this process's."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if stat.S_ISSOCK(fstat(int(entry.name)).st_mode):
                found.append(socket.fromfd(int(entry.name), socket.AF_INET, socket.SOCK_DGRAM))
        except OSError:
            continue  # the directory's own
    return [each for each in found if each.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_DGRAM]


def cut() -> None:
    for each in datagram_sockets():
        each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, FILTER)


def heal() -> None:
    for each in datagram_sockets():
        each.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)


WRITE = replica._GroupCommit.write
LATE_S = 0.1
late = set[asyncio.Future[None]]()


async def _write_early(self: replica._GroupCommit, record: WalRecord, data: memoryview) -> None:
    """Return at once, and do a write later: log and store are sound, and a server that is killed loses it."""
    if record.forces_before or record.kind is BlockKind.ABSENT:
        await WRITE(self, record, data)
        return
    work = asyncio.ensure_future(_write_late(self, record, memoryview(bytes(data))))
    late.add(work)
    work.add_done_callback(late.discard)


async def _write_late(commit: replica._GroupCommit, record: WalRecord, data: memoryview) -> None:
    await asyncio.sleep(LATE_S)
    with suppress(StoreError):  # the next command says it
        await WRITE(commit, record, data)


async def main() -> None:
    directory, host, port, key, seed, *sabotage = sys.argv[1:]
    if sabotage:
        replica._GroupCommit.write = _write_early  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, cut)
    loop.add_signal_handler(signal.SIGUSR2, heal)
    config = ServerConfig(
        directory=Path(directory), host=host, port=int(port), security=Psk(bytes.fromhex(key)),
        disk=partial(FaultyDisk, random=Random(seed)),
    )  # fmt: skip
    await serve(config, on_ready=lambda address: emit("ready", port=address[1]))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    asyncio.run(main())
