"""A card's process that has turned: `python egress_probe.py SETTINGS TCP_PORT`.

It confines itself as a card does, and then tries to connect to 127.0.0.1, and to start programs, in every way that
there is. It prints {attempt: "done" or error}.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import uvloop

from nitro_emu.card.config import load
from nitro_emu.card.trust import CardTrust

HOST = "127.0.0.1"


def tcp_by_libc() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.socket(int(socket.AF_INET), int(socket.SOCK_STREAM), 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


async def tcp_by_loop(port: int) -> None:
    await asyncio.get_running_loop().create_connection(asyncio.Protocol, HOST, port)


def main() -> None:
    """Try everything."""
    settings, tcp_port = sys.argv[1:]
    uv_loop = uvloop.new_event_loop()
    plain_loop = asyncio.new_event_loop()
    tcp = socket.socket()  # made before, as one for listening is
    port = int(tcp_port)
    attempts: dict[str, Callable[[], object]] = {
        "tcp": lambda: socket.create_connection((HOST, port)),
        "tcp, a socket from before": lambda: tcp.connect((HOST, port)),
        "tcp by libc": tcp_by_libc,
        "tcp by asyncio": lambda: plain_loop.run_until_complete(tcp_by_loop(port)),
        "tcp by uvloop": lambda: uv_loop.run_until_complete(tcp_by_loop(port)),
        "a program": lambda: subprocess.run(["/bin/true"], check=False),
        "a fork": os.fork,
        "raw ip": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        "packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0),
    }
    with asyncio.run(CardTrust.open(load(Path(settings)))) as trust:
        trust.confine()
        found = {}
        for name, attempt in attempts.items():
            try:
                attempt()
                found[name] = "done"
            except OSError as error:
                found[name] = f"{type(error).__name__}: {error}"
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
