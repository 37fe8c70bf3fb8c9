"""The plain pairs: C programs that move bulk data with nothing of a transport on top, compiled by the bench.

`plain_tcp.c` is blocking kernel TCP (cubic) with calls of 128 KiB: what TCP can do, as iperf3 is a slow user of it.
`plain_udp.c` is UDP with GSO and GRO, a window and acks: what a process can move through this kernel's UDP at all.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from scripts.benches.veth.iperf import OMIT_S, Flow
from scripts.harness.client_server import run_both
from scripts.harness.errors import BenchError
from scripts.harness.two_hosts import TwoHosts

TCP: Final = "plain_tcp"
UDP: Final = "plain_udp"
_SOURCES: Final = Path(__file__).parent
_FLAGS: Final = ("-O2", "-Wall", "-Wextra", "-Werror")
_GRACE_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class PlainPairs:
    """The compiled programs."""

    directory: Path

    def runs(self, pair: TwoHosts, *, mtu: int, seconds: float) -> dict[str, Callable[[], Flow]]:
        """Return by name what runs each pair once. They raise BenchError if a program fails."""
        of_udp = (str(mtu),)
        return {
            TCP: partial(self._run, TCP, pair, seconds=seconds, options=()),
            UDP: partial(self._run, UDP, pair, seconds=seconds, options=of_udp),
        }

    def receiver(self, name: str, host: str, *, warm_up_s: float, options: tuple[str, ...]) -> list[str]:
        """Return the command line of a pair's receiver."""
        return [str(self.directory / name), "receive", host, str(warm_up_s), *options]

    def sender(
        self, name: str, host: str, *, port: int, warm_up_s: float, seconds: float, options: tuple[str, ...]
    ) -> list[str]:
        """Return the command line of a pair's sender."""
        return [str(self.directory / name), "send", host, str(warm_up_s), str(port), str(seconds), *options]

    def _run(self, name: str, pair: TwoHosts, *, seconds: float, options: tuple[str, ...]) -> Flow:
        received, sent = run_both(
            pair,
            server=self.receiver(name, pair.receiver, warm_up_s=OMIT_S, options=options),
            client=lambda host, port: self.sender(
                name, host, port=port, warm_up_s=OMIT_S, seconds=seconds, options=options
            ),
            bound_s=OMIT_S + seconds + _GRACE_S,
        )
        cpu_s_per_gb = sum(end["cpu_s"] / (end["bytes"] / 1e9) for end in (received, sent))
        return Flow(8 * received["bytes"] / received["seconds"] / 1e9, cpu_s_per_gb)


@contextmanager
def plain_pairs() -> Iterator[PlainPairs]:
    """Compile the programs into a temporary directory. Raises BenchError if the compiler, cc, fails."""
    with TemporaryDirectory(prefix="srd-bench-plain-") as directory:
        for name in (TCP, UDP):
            _compile(_SOURCES / f"{name}.c", Path(directory, name))
        yield PlainPairs(Path(directory))


def _compile(source: Path, program: Path) -> None:
    done = subprocess.run(["cc", *_FLAGS, "-o", str(program), str(source)], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "no reason given")
        raise BenchError(f"cc could not compile {source.name}: {reason}")
