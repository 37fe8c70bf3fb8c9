"""The two hosts of a measurement: of a veth pair, of a larger lab, or both this one.

`veth_pair` makes two namespaces and one veth pair, unshaped. A topology's host is always linked to a switch, so the
receiving end is a switch: a namespace that could also route, and is reached at its own address. Nothing lies between
the two ends, so the benches measure only the hosts.

Segmentation offload `on` is a veth pair's default: super-packets of TCP and UDP cross it whole. With `off`, the sending
end segments them (in software) and the receiving end merges them again (GRO), as with a network card.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Self

from netns.backends.kernel.netlink import apply
from netns.lab.lab import Lab
from netns.lab.operations import SetOffloads
from netns.programs import ending_with_us
from netns.topology.addressing import addressing
from netns.topology.model import Link, Switch, Topology
from scripts.harness.errors import BenchError

LAB_NAME: Final = "bench-veth"
SENDER: Final = "sender"
RECEIVER: Final = "receiver"
LOOPBACK: Final = "127.0.0.1"
_OFFLOAD_ON: Final = (("tx-udp-segmentation", "on"), ("tso", "on"), ("gso", "on"), ("gro", "off"))
_OFFLOAD_OFF: Final = (("tx-udp-segmentation", "off"), ("tso", "off"), ("gso", "off"), ("gro", "on"))

Before = tuple[Sequence[str], Sequence[str]]
"""What precedes the commands of sender and receiver, to choose where they run."""


@dataclass(frozen=True, slots=True)
class TwoHosts:
    """Two hosts that are up, with the addresses that a measurement uses: the fabric's, or a tunnel's."""

    lab: Lab
    nodes: tuple[str, str]
    """Sender and receiver in the lab."""
    sender: str
    """The sending end's address."""
    receiver: str
    """The receiving end's address, which clients connect to."""
    before: Before = ((), ())

    @classmethod
    def of_lab(cls, lab: Lab, sender: str, receiver: str) -> Self:
        return cls(lab, (sender, receiver), lab.address(sender), lab.address(receiver))

    @property
    def namespaces(self) -> tuple[str, str]:
        return self.lab.netns(self.nodes[0]), self.lab.netns(self.nodes[1])

    def on(self, before: Before) -> Self:
        return replace(self, before=before)

    def command(self, end: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` at one end, SENDER or RECEIVER."""
        index = (SENDER, RECEIVER).index(end)
        return self.lab.command(self.nodes[index], [*self.before[index], *argv])

    def ping_ms(self, *, count: int, interval_s: float = 0.01) -> float:
        """Return the median round trip of pings from the sender. Raises BenchError if none is answered."""
        argv = ["ping", "-n", "-i", f"{interval_s:g}", "-c", str(count), "-W", "2", self.receiver]
        done = subprocess.run(ending_with_us(self.command(SENDER, argv)), capture_output=True, text=True, check=False)
        found = [float(value) for value in re.findall(r"time=([\d.]+) ms", done.stdout)]
        if not found:
            raise BenchError(f"ping: no answer: {(done.stderr or done.stdout).strip() or f'status {done.returncode}'}")
        return median(found)


@dataclass(frozen=True, slots=True)
class Here:
    """Two ends on this host, for benches that need no link of their own, and so neither namespaces nor root."""

    receiver: str = LOOPBACK
    before: Before = ((), ())

    def command(self, end: str, argv: Sequence[str]) -> list[str]:
        return [*self.before[(SENDER, RECEIVER).index(end)], *argv]


Pair = TwoHosts | Here


def own_cores() -> Before:
    """Return what precedes two commands, so that each runs on a core of its own; nothing where there is only one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        return (), ()
    return ("taskset", "--cpu-list", str(cores[0])), ("taskset", "--cpu-list", str(cores[1]))


def one_core() -> Before:
    """Return what precedes two commands, so that both run on the same core.

    Then the other end's work is the time that one waits, no core goes idle between them, and none has to be woken: the
    processor time of each is that of its own work, also on a busy machine.
    """
    core = ("taskset", "--cpu-list", str(max(os.sched_getaffinity(0))))
    return core, core


def halves() -> Before:
    """Return what precedes two commands, so that each end has half of the processors for all of its processes.

    A card and the applications at its end share them, and take turns by `sched_yield`. Without this the system moves
    the processes between processors, and an application often shares one with the other end's card: round trips take
    1.6 times as long then, and the rate of small messages halves, at random.

    All processes, in-process SRD's too, have the policy SCHED_RR (sched(7)): a yield hands the processor to the next of
    them. Under the default policy who yields also waits for some milliseconds for one that does not yield.
    """
    processors = sorted(os.sched_getaffinity(0))
    middle = len(processors) // 2
    first, second = (
        ("chrt", "--rr", "1", "taskset", "--cpu-list", ",".join(map(str, half)))
        for half in (processors[:middle] or processors, processors[middle:])
    )
    return first, second


def topology(*, mtu: int, name: str = LAB_NAME) -> Topology:
    link = Link(SENDER, RECEIVER)
    return Topology(name=name, hosts=(SENDER,), switches=(Switch(RECEIVER, "leaf"),), links=(link,), mtu=mtu)


@contextmanager
def veth_pair(*, mtu: int, offload: bool, name: str = LAB_NAME) -> Iterator[TwoHosts]:
    """Build the pair, and always remove it afterwards. Raises LabError with one line."""
    plan = topology(mtu=mtu, name=name)
    with Lab.up(plan) as lab:
        features = _OFFLOAD_ON if offload else _OFFLOAD_OFF
        apply(
            SetOffloads(lab.netns(node), neighbour, features)
            for node, neighbour in ((SENDER, RECEIVER), (RECEIVER, SENDER))
        )
        receiver = addressing(plan).transfer[RECEIVER, SENDER]
        yield TwoHosts(lab, (SENDER, RECEIVER), lab.address(SENDER), receiver)
