"""Two namespaces with a TAP device each, for a relay between them; no other program sends frames there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from netns.backends.relay.client import request, start_relay
from netns.backends.relay.tap import inside
from netns.netem.shape import Shape
from netns.processes import ProcessIdentity, end, reap
from tests.patience import PATIENCE_S

PORT = 9999
IFNAME = "tap0"
SO_RCVBUFFORCE = 33  # asm-generic/socket.h
ROOM_BYTES = 8 << 20
"""The usual 200 kB hold a hundred packets: a test that had to wait for its turn for a tenth of a second lost some."""
_numbers = count()


@dataclass
class TapPair:
    """Namespaces `a` and `b`, each with a quiet TAP `tap0`, addresses 10.9.0.1 and 10.9.0.2."""

    a: str
    b: str
    directory: Path
    relays: dict[int, ProcessIdentity] = field(default_factory=dict)

    address_a = "10.9.0.1"
    address_b = "10.9.0.2"

    @property
    def control(self) -> Path:
        return self.directory / "relay.sock"

    def spec(self, *, ab: Shape | None = None, ba: Shape | None = None, seed: int = 1) -> Path:
        """Write the specification of a relay for this pair; return its path."""
        link = {
            "name": "a-b",
            "netns_a": self.a,
            "ifname_a": IFNAME,
            "netns_b": self.b,
            "ifname_b": IFNAME,
            "shape_ab": (ab or Shape()).to_dict(),
            "shape_ba": (ba or Shape()).to_dict(),
            "seed_ab": seed,
            "seed_ba": seed + 1,
        }
        path = self.directory / "relay.json"
        path.write_text(json.dumps({"lab": "test", "control": str(self.control), "links": [link]}))
        return path

    def relay(self, *, ab: Shape | None = None, ba: Shape | None = None, seed: int = 1) -> int:
        """Start a relay over this pair; return its process id. It is stopped with the pair."""
        print(f"seed {seed}")
        pid = start_relay(self.spec(ab=ab, ba=ba, seed=seed), log_path=self.directory / "relay.log")
        self.note(pid)
        return pid

    def note(self, pid: int) -> None:
        """Have a relay stopped with the pair."""
        process = ProcessIdentity.of(pid)
        assert process is not None
        self.relays[pid] = process

    def stop(self, pid: int) -> bool:
        """Stop a relay; return whether it was still running."""
        process = self.relays.pop(pid)
        was_alive = process.alive
        end([process])
        reap([process])
        return was_alive

    def counters(self, direction: str = "ab") -> dict[str, int]:
        counters: dict[str, int] = request(self.control, {"op": "counters"})["links"]["a-b"][direction]
        return counters

    def reshape(self, direction: str, shape: Shape) -> dict[str, Any]:
        message = {"op": "set", "link": "a-b", "direction": direction, "shape": shape.to_dict()}
        return request(self.control, message)

    def udp(self, side: str) -> socket.socket:
        """Open a UDP socket in namespace `side`, bound to its address and PORT, with room for all that a test sends."""
        name, address = (self.a, self.address_a) if side == "a" else (self.b, self.address_b)
        with inside(name):
            endpoint = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        endpoint.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM_BYTES)
        endpoint.bind((address, PORT))
        endpoint.settimeout(PATIENCE_S)
        return endpoint


def ip(*arguments: str, netns: str | None = None) -> None:
    where = ["-n", netns] if netns else []
    subprocess.run(["ip", *where, *arguments], check=True, capture_output=True)


def add_namespace(name: str, *, address: str, peer: str, mac: str, peer_mac: str) -> None:
    ip("netns", "add", name)
    quiet = ["sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"]
    subprocess.run(["ip", "netns", "exec", name, *quiet], check=True)
    ip("tuntap", "add", IFNAME, "mode", "tap", netns=name)
    ip("link", "set", IFNAME, "address", mac, "mtu", "9000", "txqueuelen", "10000", "up", netns=name)
    ip("address", "add", f"{address}/24", "dev", IFNAME, netns=name)
    ip("neigh", "add", peer, "lladdr", peer_mac, "dev", IFNAME, "nud", "permanent", netns=name)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[TapPair]:
    stem = f"tp{os.getpid()}-{next(_numbers)}"
    made = TapPair(a=f"{stem}a", b=f"{stem}b", directory=tmp_path)
    macs = "02:00:00:00:00:01", "02:00:00:00:00:02"
    try:
        add_namespace(made.a, address=made.address_a, peer=made.address_b, mac=macs[0], peer_mac=macs[1])
        add_namespace(made.b, address=made.address_b, peer=made.address_a, mac=macs[1], peer_mac=macs[0])
        yield made
    finally:
        for pid in list(made.relays):
            made.stop(pid)
        for name in (made.a, made.b):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)
