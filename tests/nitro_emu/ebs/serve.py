"""A volume server as a process, on a disk that fails: DIRECTORY HOST PORT KEY SEED.

KEY in hexadecimal digits. After SIGUSR1 the kernel drops all that is sent to it, until
SIGUSR2.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import socket
import stat
import sys
from functools import partial
from os import fstat
from pathlib import Path
from random import Random

from netns.base.output import emit
from nitro_emu.ebs.server.service import ServerConfig, serve
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


async def main() -> None:
    directory, host, port, key, seed = sys.argv[1:]
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
