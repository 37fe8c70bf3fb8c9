"""The two hosts of examples: those of the reference fabric, over it as it is, and over what else carries packets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from examples.tunnel.hosts import Pair, TunnelHost
from netns import pytest as plugin
from netns.lab.lab import Lab
from tests.patience import PATIENCE_S

SERVER, CLIENT = "h2", "h1"
lab = plugin.lab  # pytest looks for it here


@dataclass(frozen=True, slots=True)
class Network:
    """A lab, and where the examples run in it."""

    lab: Lab
    pair: Pair

    @classmethod
    def of(cls, lab: Lab, *, address: str) -> Network:
        """The lab's two hosts, the server reached by an address."""
        server, client = (TunnelHost(tuple(lab.command(host, []))) for host in (SERVER, CLIENT))
        return cls(lab, Pair(server, client, address))

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


@contextmanager
def tunnel(lab: Lab) -> Iterator[str]:
    """Run `srd tunnel` between the two hosts; yields the server's address in it."""
    srd = (sys.executable, "-m", "srd", "tunnel")
    listen = lab.command(SERVER, [*srd, "listen", "--address", "10.88.0.1/24", "--allow-anyone"])
    connect = lab.command(CLIENT, [*srd, "connect", f"{lab.address(SERVER)}:19880", "--address", "10.88.0.2/24"])
    with running(listen, until="listening on"), running(connect, until="connected to"):
        yield "10.88.0.1"


@contextmanager
def running(command: Sequence[str], *, until: str) -> Iterator[None]:
    """Run a command during the block, which begins when it has logged a line with some words; SIGTERM ends it."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            logged = list[str]()
            for line in process.stderr:
                logged.append(line)
                if until in line:
                    break
            assert logged, command
            assert until in logged[-1], logged
            yield
        finally:
            process.terminate()
            _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, errors
        assert "error" not in errors, errors


@pytest.fixture(params=[pytest.param("fabric", marks=pytest.mark.long), "tunnel"])
def network(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Network]:
    """The two hosts without and with a tunnel; whatever an example starts has ended when it returns."""
    with ExitStack() as stack:
        if request.param == "tunnel":
            made = Network.of(lab, address=stack.enter_context(tunnel(lab)))
        else:
            for host in (SERVER, CLIENT):
                own_interface(lab, host)
            made = Network.of(lab, address=lab.address(SERVER))
        before = made.processes
        yield made
        assert made.processes == before


@pytest.fixture
def tunnelled(lab: Lab) -> Iterator[Network]:
    """The two hosts with a tunnel."""
    with tunnel(lab) as address:
        yield Network.of(lab, address=address)
