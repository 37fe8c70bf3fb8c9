"""Link-local addresses of IPv6: two hosts on one link, which name their interface (RFC 4007)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from netns.backends.kernel.netlink import apply
from netns.lab.operations import SyncCarrier
from tests.programs import run_to_end
from tests.srd.cli.processes import Process, command
from tests.srd.tunnel.cable import ip, namespaces, set_up

RECEIVER, SENDER = "fe80::1", "fe80::2"


@pytest.fixture
def link() -> Iterator[list[str]]:
    """Two namespaces on a veth pair, with link-local addresses only; the interfaces differ in name and number."""
    with namespaces(2) as names:
        ip("link", "add", "left", "type", "veth", *f"peer name right index 77 netns {names[1]}".split(), netns=names[0])
        for name, device, address in zip(names, ("left", "right"), (RECEIVER, SENDER), strict=True):
            ip("link", "set", device, "addrgenmode", "none", netns=name)
            set_up(name, device, f"{address}/64")
        apply([SyncCarrier(names[0], "left"), SyncCarrier(names[1], "right")])
        yield names


def inside(namespace: str, *arguments: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *command(*arguments)]


@pytest.mark.root
def test_send__to_a_link_local_address(link: tuple[str, str], inputs: Path, output: Path) -> None:
    here, there = link
    file = inputs / "file.bin"
    file.write_bytes(os.urandom(300_000))
    receiving = inside(here, "recv", "-B", f"{RECEIVER}%left", "-p", "0", "--output", str(output), "--json-lines")
    with Process(receiving) as receiver:
        listening = receiver.event("listening")
        assert listening["address"] == f"{RECEIVER}%left"
        for zone, error in (("%right", ""), ("%nowhere", f"{RECEIVER}%nowhere: no such interface")):
            target = f"[{RECEIVER}{zone}]:{listening['port']}"
            done = run_to_end(inside(there, "send", str(file), target), stdin=subprocess.DEVNULL)
            assert (done.returncode, error in done.stderr) == (1 if error else 0, True), done.stderr
        assert (output / "file.bin").read_bytes() == file.read_bytes()


@pytest.mark.root
def test_send__to_a_link_local_port_at_which_nothing_listens(link: tuple[str, str], inputs: Path) -> None:
    """The ICMP error's address, with its scope, equals the peer's: the attempt ends at once."""
    file = inputs / "file.bin"
    file.write_bytes(b"x")
    target = f"[{RECEIVER}%right]:9"
    done = run_to_end(inside(link[1], "send", str(file), target), stdin=subprocess.DEVNULL)
    assert done.returncode == 1
    assert done.stderr.startswith(f"srd: {target}: ")
    assert "nothing listens there (port unreachable)" in done.stderr
