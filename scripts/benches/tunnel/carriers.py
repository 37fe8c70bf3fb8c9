"""What carries the packets between two hosts: `srd tunnel`, WireGuard in user space, OpenVPN.

Each is up during a block, which gets the ends with the addresses inside. All but `srd tunnel --plain` encrypt.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cryptography.hazmat.primitives import hashes

from netns.processes import processes_in
from netns.programs import tool
from scripts.benches.veth import wireguard
from scripts.harness.certificate import self_signed
from scripts.harness.client_server import python
from scripts.harness.process import ProcessGroup, processor_s
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts
from scripts.harness.waiting import wait_until

READY_S: Final = 20.0
_PORT: Final = 19880
_INNER: Final = {SENDER: "10.88.0.2", RECEIVER: "10.88.0.1"}
_OPENVPN_INNER: Final = {SENDER: "10.89.0.2", RECEIVER: "10.89.0.1"}
_OPENVPN_OVERHEAD_BYTES: Final = 60
"""IP, UDP, opcode and peer, packet number, tag."""


@contextmanager
def srd_tunnel(ends: TwoHosts, *options: str) -> Iterator[TwoHosts]:
    """Run `srd tunnel` at both ends. Raises BenchError if it does not come up."""
    inner = replace(ends, sender=_INNER[SENDER], receiver=_INNER[RECEIVER])
    with ProcessGroup() as group:
        for node, what in (
            (RECEIVER, ("listen", "--allow-anyone", "--port", str(_PORT))),
            (SENDER, ("connect", f"{ends.receiver}:{_PORT}")),
        ):
            argv = python("srd", "tunnel", *what, "--address", f"{_INNER[node]}/24", *options)
            group.start(f"srd tunnel {what[0]}", ends.command(node, argv))
        await_answer(inner, group)
        yield inner
        group.require_running()  # else packets went around the tunnel, maybe


@contextmanager
def wireguard_go(ends: TwoHosts, *, mtu: int) -> Iterator[TwoHosts]:
    """Run wireguard-go at both ends. Raises BenchError if it does not come up."""
    with wireguard.tunnel(ends, mtu=mtu) as inner, ProcessGroup() as none:
        await_answer(inner, none)
        yield inner


@contextmanager
def openvpn(ends: TwoHosts, *, mtu: int) -> Iterator[TwoHosts]:
    """Run OpenVPN at both ends, over UDP, with AES-256-GCM. Raises BenchError if it does not come up."""
    inner = replace(ends, sender=_OPENVPN_INNER[SENDER], receiver=_OPENVPN_INNER[RECEIVER])
    outer = {SENDER: ends.sender, RECEIVER: ends.receiver}
    with TemporaryDirectory(prefix="bench-openvpn-") as folder, ProcessGroup() as group:
        made = {node: self_signed(Path(folder, node), address=address) for node, address in outer.items()}
        for node, other, role in ((RECEIVER, SENDER, "server"), (SENDER, RECEIVER, "client")):
            options = {
                "dev-type": "tun",
                "dev": f"bench{role}",
                "ifconfig": f"{_OPENVPN_INNER[node]} {_OPENVPN_INNER[other]}",
                "proto": "udp",
                "local": outer[node],
                "remote": outer[other],
                "tun-mtu": str(mtu - _OPENVPN_OVERHEAD_BYTES),
                "mssfix": "0",
                "data-ciphers": "AES-256-GCM",
                "cert": f"{folder}/{node}.crt",
                "key": f"{folder}/{node}.key",
                "peer-fingerprint": made[other].fingerprint(hashes.SHA256()).hex(":"),
                "verb": "1",
            } | ({"dh": "none"} if role == "server" else {})
            words = [word for name, value in options.items() for word in (f"--{name}", *value.split())]
            argv = ends.command(node, [tool("openvpn"), "--disable-dco", "--fast-io", f"--tls-{role}", *words])
            group.start("openvpn", argv)
        await_answer(inner, group)
        yield inner
        group.require_running()  # else packets went around the tunnel, maybe


def await_answer(pair: TwoHosts, group: ProcessGroup) -> None:
    """Wait until the receiver's address answers a ping. Raises BenchError if it does not, or a process ends.

    The ping is from the sender's address, so that it is from its interface: the receiver's host answers for the address
    inside a tunnel also to packets that come around the tunnel.
    """
    argv = pair.command(SENDER, ["ping", "-n", "-c", "1", "-W", "0.2", "-I", pair.sender, pair.receiver])

    def is_answered() -> bool:
        group.require_running()
        return not subprocess.run(argv, capture_output=True, check=False).returncode

    wait_until(is_answered, within_s=READY_S, missing=f"{pair.receiver}: no answer through the tunnel")


@dataclass(frozen=True, slots=True)
class CarrierUsage:
    cpu_s: float
    """User and system."""
    peak_rss_bytes: int

    @classmethod
    def of(cls, ends: TwoHosts) -> CarrierUsage:
        """Read it, of all processes in both ends' namespaces: the carrier's, while nothing else runs there."""
        pids = [process.pid for process in processes_in(ends.namespaces)]
        peak_bytes = 0
        for pid in pids:
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            peak_bytes += 1024 * int(status["VmHWM"].split()[0])
        return cls(sum(map(processor_s, pids)), peak_bytes)
