"""The two hosts of examples: those of the reference fabric, over it as it is, and over what else carries packets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from examples.tunnel.hosts import Host
from netns.lab.lab import Lab
from netns.topology.model import reference

_numbers = count()
SERVER, CLIENT = "h2", "h1"


@dataclass(frozen=True, slots=True)
class Network:
    """A lab, and the server's address in it."""

    lab: Lab
    address: str

    @property
    def server(self) -> Host:
        return Host(tuple(self.lab.command(SERVER, [])))

    @property
    def client(self) -> Host:
        return Host(tuple(self.lab.command(CLIENT, [])))

    @property
    def processes(self) -> list[str]:
        """Commands that run in the hosts."""
        ours = (self.lab.netns(SERVER), self.lab.netns(CLIENT))
        return [str(each["command"]) for each in self.lab.status()["processes"] if each["netns"] in ours]


def own_interface(lab: Lab, host: str) -> None:
    """Move a host's main address to an interface that has no other, as Open MPI takes one address of each."""
    address, leaf = lab.address(host), lab.topology.switch_of(host)
    gateway = lab.addressing().transfer[leaf, host]
    for command in (
        "tuntap add dev main mode tap",
        "link set main up",
        f"address delete {address}/32 dev {leaf}",
        f"address add {address}/32 dev main",
        f"route replace 10.0.0.0/16 via {gateway} src {address}",
    ):
        subprocess.run(lab.command(host, ["ip", *command.split()]), check=True)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab.up(reference(name=f"t{os.getpid()}-programs{next(_numbers)}")) as made:
        yield made


@pytest.fixture(params=["fabric"])
def network(lab: Lab) -> Iterator[Network]:
    """Whatever an example starts has ended when it returns."""
    for host in (SERVER, CLIENT):
        own_interface(lab, host)
    made = Network(lab, lab.address(SERVER))
    before = made.processes
    yield made
    assert made.processes == before
