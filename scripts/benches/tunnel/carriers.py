"""What carries the packets between two hosts: `srd tunnel`, WireGuard in user space, OpenVPN.

Each is up during a block, which gets the ends with the addresses inside. All but `srd tunnel --plain` encrypt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from netns.processes import processes_in
from netns.programs import tool
from scripts.benches.tunnel.ends import Ends, require_running
from scripts.benches.veth import wireguard
from scripts.harness.process import ManagedProcess, ProcessSet
from scripts.harness.veth_pair import RECEIVER, SENDER

_PORT: Final = 19880
_INNER: Final = {SENDER: "10.88.0.2", RECEIVER: "10.88.0.1"}
_OPENVPN_INNER: Final = {SENDER: "10.89.0.2", RECEIVER: "10.89.0.1"}
_OPENVPN_OVERHEAD_BYTES: Final = 60
"""IP, UDP, opcode and peer, packet number, tag."""
_TICKS_PER_S: Final = 100
"""USER_HZ."""


@contextmanager
def srd_tunnel(ends: Ends, *options: str) -> Iterator[Ends]:
    """Run `srd tunnel` at both ends. Raises BenchError if it does not come up."""
    inner = replace(ends, sender=_INNER[SENDER], receiver=_INNER[RECEIVER])
    srd = (sys.executable, "-m", "srd", "tunnel")
    processes = list[ManagedProcess]()
    with ProcessSet() as pipes:
        for node, what in (
            (RECEIVER, ("listen", "--allow-anyone", "--port", str(_PORT))),
            (SENDER, ("connect", f"{ends.receiver}:{_PORT}")),
        ):
            argv = ends.command(node, [*srd, *what, "--address", f"{_INNER[node]}/24", *options])
            processes.append(pipes.add(ManagedProcess.start(f"srd tunnel {what[0]}", command=argv)))
        inner.await_answer(*processes)
        yield inner
        require_running(processes)  # else packets went around the tunnel, maybe


@contextmanager
def wireguard_go(ends: Ends, *, mtu: int) -> Iterator[Ends]:
    """Run wireguard-go at both ends. Raises BenchError if it does not come up."""
    with wireguard.tunnel(ends, mtu=mtu) as inner:
        inner.await_answer()
        yield inner


@contextmanager
def openvpn(ends: Ends, *, mtu: int) -> Iterator[Ends]:
    """Run OpenVPN at both ends, over UDP, with AES-256-GCM. Raises BenchError if it does not come up."""
    inner = replace(ends, sender=_OPENVPN_INNER[SENDER], receiver=_OPENVPN_INNER[RECEIVER])
    outer = {SENDER: ends.sender, RECEIVER: ends.receiver}
    processes = list[ManagedProcess]()
    with TemporaryDirectory(prefix="bench-openvpn-") as folder, ProcessSet() as pipes:
        prints = {node: _certificate(Path(folder, node)) for node in outer}
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
                "peer-fingerprint": prints[other],
                "verb": "1",
            } | ({"dh": "none"} if role == "server" else {})
            words = [word for name, value in options.items() for word in (f"--{name}", *value.split())]
            argv = ends.command(node, [tool("openvpn"), "--disable-dco", "--fast-io", f"--tls-{role}", *words])
            processes.append(pipes.add(ManagedProcess.start("openvpn", command=argv)))
        inner.await_answer(*processes)
        yield inner
        require_running(processes)  # else packets went around the tunnel, maybe


def _certificate(path: Path) -> str:
    """Write a key and a certificate that is signed by it; return the certificate's fingerprint."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, path.name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    path.with_suffix(".crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.with_suffix(".key").touch(mode=0o600)
    path.with_suffix(".key").write_bytes(private)
    return made.fingerprint(hashes.SHA256()).hex(":")


@dataclass(frozen=True, slots=True)
class Usage:
    """What the processes of a carrier have used so far, both ends together."""

    cpu_s: float
    """User and system."""
    peak_rss_bytes: int

    @classmethod
    def of(cls, ends: Ends) -> Usage:
        """Read it, of all processes in both ends' namespaces: the carrier's, while nothing else runs there."""
        ticks, peak_bytes = 0, 0
        for process in processes_in(ends.namespaces):
            folder = Path(f"/proc/{process.pid}")
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            peak_bytes += 1024 * int(status["VmHWM"].split()[0])
        return cls(ticks / _TICKS_PER_S, peak_bytes)
