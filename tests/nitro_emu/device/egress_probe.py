"""A card's process that has turned: `python egress_probe.py SETTINGS MAP TCP_PORT UDP_PORT CARD`.

It takes the keys and the mapping as a card does, confines itself, and then tries to reach 127.0.0.1, which is no card,
in every way that there is; and CARD, which is one. It prints {"found": {attempt: "done" or error}, "alarms": {...}}.
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

from nitro_emu.config import load
from nitro_emu.device.card_trust import CardTrust
from nitro_emu.errors import TrustError

HOST = "127.0.0.1"


def udp() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


def tcp_by_libc() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.socket(int(socket.AF_INET), int(socket.SOCK_STREAM), 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


async def tcp_by_loop(port: int) -> None:
    await asyncio.get_running_loop().create_connection(asyncio.Protocol, HOST, port)


async def udp_by_loop(port: int) -> None:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=(HOST, port)
    )
    transport.sendto(b"x")


def main() -> None:
    """Try everything."""
    settings, mapping, tcp_port, udp_port, card = sys.argv[1:]
    uv_loop = uvloop.new_event_loop()
    plain_loop = asyncio.new_event_loop()
    tcp = socket.socket()  # made before, as one for listening is
    port, other = int(tcp_port), int(udp_port)
    attempts: dict[str, Callable[[], object]] = {
        "tcp": lambda: socket.create_connection((HOST, port)),
        "tcp, a socket from before": lambda: tcp.connect((HOST, port)),
        "tcp by libc": tcp_by_libc,
        "tcp by asyncio": lambda: plain_loop.run_until_complete(tcp_by_loop(port)),
        "tcp by uvloop": lambda: uv_loop.run_until_complete(tcp_by_loop(port)),
        "udp": lambda: udp().sendto(b"x", (HOST, other)),
        "udp, connected": lambda: udp().connect((HOST, other)),
        "udp by sendmsg": lambda: udp().sendmsg([b"x"], [], 0, (HOST, other)),
        "udp by asyncio": lambda: plain_loop.run_until_complete(udp_by_loop(other)),
        "a name": lambda: socket.getaddrinfo("open-srd.example", 443),
        "a name, the old way": lambda: socket.gethostbyname("open-srd.example"),
        "a program": lambda: subprocess.run(["/bin/true"], check=False),
        "a shell": lambda: os.system("true"),  # noqa: S605 - refused
        "a fork": os.fork,
        "another program": lambda: os.execv("/bin/true", ["true"]),  # noqa: S606 - refused
        "raw ip": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1),
        "packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0),
        "a card": lambda: udp().sendto(b"x", (card, other)),
    }
    with asyncio.run(CardTrust.open(load(Path(settings)))) as trust:
        assert trust.network is not None
        trust.network.set_map_untrusted(Path(mapping).read_bytes())
        trust.confine()
        found = {}
        for name, attempt in attempts.items():
            try:
                attempt()
                found[name] = "done"
            except (OSError, TrustError) as error:
                found[name] = f"{type(error).__name__}: {error}"
        print(json.dumps({"found": found, "alarms": dict(trust.alarms.counts)}), flush=True)


if __name__ == "__main__":
    main()
