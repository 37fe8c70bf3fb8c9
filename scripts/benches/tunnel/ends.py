"""Two hosts of a lab, with the addresses that a measurement uses: the fabric's, or a tunnel's."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Self

from netns.lab.lab import Lab
from netns.programs import ending_with_us
from scripts.harness.errors import BenchError
from scripts.harness.process import ManagedProcess
from scripts.harness.veth_pair import RECEIVER, SENDER, VethPair

READY_S: Final = 20.0
_PING_INTERVAL_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Ends:
    """Two hosts, as the harness takes them."""

    lab: Lab
    nodes: tuple[str, str]
    """Sender and receiver in the lab."""
    sender: str
    """The sender's address."""
    receiver: str
    """The receiver's address, which clients connect to."""

    @classmethod
    def of_veth(cls, pair: VethPair) -> Self:
        """Return the ends of a veth pair."""
        return cls(pair.lab, (SENDER, RECEIVER), pair.sender, pair.receiver)

    @classmethod
    def of_lab(cls, lab: Lab, sender: str, receiver: str) -> Self:
        """Return two hosts with their main addresses."""
        return cls(lab, (sender, receiver), lab.address(sender), lab.address(receiver))

    @property
    def namespaces(self) -> tuple[str, str]:
        """Both ends' namespaces."""
        return self.lab.netns(self.nodes[0]), self.lab.netns(self.nodes[1])

    def command(self, node: str, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` at one end, SENDER or RECEIVER."""
        return self.lab.command(self.nodes[0] if node == SENDER else self.nodes[1], argv)

    def await_answer(self, *processes: ManagedProcess) -> None:
        """Wait until the receiver's address answers a ping. Raises BenchError if it does not, or a process ends.

        The ping is from the sender's address, so that it is from its interface: the receiver's host answers for the
        address inside a tunnel also to packets that come around the tunnel.
        """
        give_up_at = time.monotonic() + READY_S
        argv = self.command(SENDER, ["ping", "-n", "-c", "1", "-W", "0.2", "-I", self.sender, self.receiver])
        while subprocess.run(argv, capture_output=True, check=False).returncode:
            require_running(processes)
            if time.monotonic() >= give_up_at:
                raise BenchError(f"{self.receiver}: no answer through the tunnel within {READY_S:g} s")
            time.sleep(0.05)

    def ping_ms(self, *, count: int) -> float:
        """Return the median of round trips. Raises BenchError without any."""
        argv = ["ping", "-n", "-i", f"{_PING_INTERVAL_S:g}", "-c", str(count), "-W", "1", self.receiver]
        done = subprocess.run(ending_with_us(self.command(SENDER, argv)), capture_output=True, text=True, check=False)
        found = [float(value) for value in re.findall(r"time=([\d.]+) ms", done.stdout)]
        if not found:
            raise BenchError(f"ping: no answer: {(done.stderr or done.stdout).strip() or f'status {done.returncode}'}")
        return median(found)


def require_running(processes: Iterable[ManagedProcess]) -> None:
    """Raise BenchError if one has ended."""
    for process in processes:
        if process.exit_status is not None:
            process.stop()
            raise BenchError(f"{process.name}: {process.last_error or f'status {process.exit_status}'}")
