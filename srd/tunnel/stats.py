"""What a running tunnel tells `srd tunnel metrics`: JSON over an abstract Unix socket, named after the interface.

An abstract name belongs to the network namespace, as the interface does, and disappears with the process.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from netns.base.addresses import host_port_text
from srd.errors import SrdError
from srd.metrics.snapshot import Family
from srd.stats import meanings
from srd.tunnel.counters import Counters
from srd.tunnel.running import RunningTunnel

PREFIX: Final = "open-srd-tunnel/"
SOCKETS: Final = Path("/proc/net/unix")
TIMEOUT_S: Final = 5.0
MAX_ANSWER_BYTES: Final = 16 << 20
ENA_SRD_MODE: Final = 3
"""A tunnel's of AWS' values: 0: off; 1: ENA Express is on, without UDP; 2: it is off, and was on for UDP; 3: it is on,
and UDP uses it. It says what is switched on; the counters say what goes over SRD."""
_GAUGES: Final = {
    "ena_srd_mode": "ENA Express's mode: 3, it is on, and UDP uses it.",
    "ena_srd_resource_utilization": "Memory for messages in use, percent.",
    "peers": "SRD peers that packets pass to now.",
    "encapsulation_active": "Whether packets without an SRD peer go in plain UDP now: 1, or 0.",
}
_MEANINGS: Final = _GAUGES | meanings(Counters)
"""The metrics: meaning."""


@asynccontextmanager
async def serving_stats(tunnel: RunningTunnel) -> AsyncIterator[None]:
    """Answer each connection with a report, until the end of the block. Raises SrdError."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        writer.write(json.dumps(report(tunnel)).encode())
        writer.close()

    name = tunnel.device.name
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.bind(f"\0{PREFIX}{name}")
        server = await asyncio.start_unix_server(answer, sock=sock)
    except OSError as error:
        sock.close()
        raise SrdError(f"{name}: its statistics cannot be served: {error.strerror}") from error
    try:
        yield
    finally:
        server.close()


def report(tunnel: RunningTunnel) -> dict[str, object]:
    """Return the counters of a tunnel and of each of its peers."""
    gateway, encapsulation = tunnel.gateway, tunnel.routing.encapsulation
    totals = gateway.totals()
    totals.add(tunnel.routing.counters)
    return {
        "interface": tunnel.device.name,
        "ena_srd_mode": ENA_SRD_MODE,
        "ena_srd_resource_utilization": round(100 * gateway.memory.used_fraction),
        "encapsulation_active": encapsulation is not None and encapsulation.is_active,
        **totals.as_json(),
        "peers": [
            {
                "address": host_port_text(*member.peer.address),
                "fingerprint": member.peer.identity.fingerprint,
                "smoothed_rtt_s": member.peer.smoothed_rtt_s,
                "queued_packets": member.queued_packets,
                **member.counters.as_json(),
            }
            for member in gateway.members
            if member.has_joined
        ],
    }


def families(found: dict[str, Any]) -> list[Family]:
    """Return a report's totals as metrics: ENA Express's under their own names.

    Raises SrdError for the report of another version.
    """
    if missing := [name for name in _MEANINGS if name not in found]:
        raise SrdError(f"{found.get('interface')}: is a tunnel of another version, which has no {missing[0]}")
    found = {**found, "peers": len(found["peers"])}
    return [
        Family(
            name if name.startswith("ena_srd_") else f"srd_tunnel_{name}",
            meaning,
            is_counter=name not in _GAUGES,
            label="reason" if isinstance(found[name], dict) else None,
            values=found[name] if isinstance(found[name], dict) else {"": found[name]},
        )
        for name, meaning in _MEANINGS.items()
    ]


def describe(found: dict[str, Any]) -> str:
    """Return a report as text: a line for each value, and for each peer."""
    lines = [f"{found['interface']}:"]
    for name, value in found.items():
        if isinstance(value, dict):
            lines += [f"    {name}.{reason}: {count}" for reason, count in value.items()]
        elif name not in {"interface", "peers"}:
            lines.append(f"    {name}: {value}")
    lines += [
        f"    peer {each['address']}: tx {each['tx_bytes']} bytes, rx {each['rx_bytes']} bytes, "
        f"round trip {1e3 * each['smoothed_rtt_s']:.2f} ms"
        for each in found["peers"]
    ]
    return "\n".join(lines) + "\n"


def names() -> list[str]:
    """Return the interfaces of the tunnels that run in this network namespace."""
    words = (line.split() for line in SOCKETS.read_text().splitlines()[1:])
    paths = {each[7] for each in words if len(each) > 7}
    return sorted(path[1 + len(PREFIX) :] for path in paths if path.startswith(f"@{PREFIX}"))


def ask(name: str) -> dict[str, Any]:
    """Return the report of the tunnel with interface `name`. Raises SrdError."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(TIMEOUT_S)
        try:
            sock.connect(f"\0{PREFIX}{name}")
            answer = b""
            while part := sock.recv(1 << 16):
                answer += part
                if len(answer) > MAX_ANSWER_BYTES:
                    raise SrdError(f"{name}: what answers there is no srd tunnel")
        except OSError as error:
            running = ", ".join(names()) or "none"
            raise SrdError(f"{name}: no tunnel of this name runs in this namespace (running: {running})") from error
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise SrdError(f"{name}: what answers there is no srd tunnel of this version") from error
    if not isinstance(found, dict):
        raise SrdError(f"{name}: what answers there is no srd tunnel of this version")
    return found
