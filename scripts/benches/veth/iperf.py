"""Bulk data as iperf3 reports it: of kernel TCP by iperf3, of SRD by `srd perf client`.

iperf3's congestion control is named, as the default differs between machines.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from netns.backends.kernel.netlink import in_namespace
from scripts.harness import perf
from scripts.harness.errors import BenchError
from scripts.harness.process import ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts
from scripts.harness.waiting import wait_until
from srd.perf.tcp_socket import BBR, CUBIC

ALGORITHMS: Final = (CUBIC, BBR)
PORT: Final = 5201
OMIT_S: Final = 1
"""Seconds at the start of the connection that do not count."""
_CHECKED: Final = "64M"
LISTEN_BOUND_S: Final = 15.0
_GRACE_S: Final = 15.0
_TCP_LISTEN: Final = "0A"  # include/net/tcp_states.h


@dataclass(frozen=True, slots=True)
class IperfFlow:
    gbps: float
    """Payload that the receiver has read."""
    cpu_s_per_gb: float
    """CPU time of both processes, user and system."""

    @classmethod
    def of(cls, report: dict[str, Any]) -> IperfFlow:
        received, load = report["end"]["sum_received"], report["end"]["cpu_utilization_percent"]
        cpu_s = (load["host_total"] + load["remote_total"]) / 100 * received["seconds"]
        return cls(received["bits_per_second"] / 1e9, cpu_s / (received["bytes"] / 1e9))

    def named(self, pattern: str) -> dict[str, float]:
        """Return the figures by name; `pattern`: of which {} stands for `gbps` and `cpu_s_per_gb`."""
        return {pattern.format(name): value for name, value in asdict(self).items()}


def ours(pair: TwoHosts, *, seconds: float, plain: bool) -> IperfFlow:
    """Run one flow of SRD, in plain text or encrypted; before it one of 64 MiB of which every byte is compared.

    Raises BenchError if a byte is wrong, or a run fails.
    """
    options = ["--plain"] if plain else []
    perf.measure(pair, "client", "-n", _CHECKED, "--verify", *options, bound_s=_GRACE_S)
    timed = ("-t", f"{seconds:g}", "-O", str(OMIT_S), *options)
    return IperfFlow.of(perf.measure(pair, "client", *timed, bound_s=OMIT_S + seconds))


def run(pair: TwoHosts, *, algorithm: str, seconds: float, omit_s: int = OMIT_S) -> IperfFlow:
    with running(pair, algorithm=algorithm, seconds=seconds, omit_s=omit_s) as ended:
        return ended()


@contextmanager
def running(
    pair: TwoHosts, *, algorithm: str, seconds: float, omit_s: int = OMIT_S
) -> Iterator[Callable[[], IperfFlow]]:
    """Run one flow during the block; yields a function that waits for its end. Raises BenchError if iperf3 fails.

    `omit_s`: time at its start that does not count.
    """
    whole_s = max(round(seconds), 1)
    with tempfile.TemporaryDirectory() as directory, ProcessGroup() as group:
        log = Path(directory) / "client.json"
        group.start("iperf3 -s", pair.command(RECEIVER, ["iperf3", "-s", "-1"]))
        _await_listener(group, pair)
        options = ["-t", str(whole_s), "-O", str(omit_s), "-C", algorithm, "-J", "--logfile", str(log)]
        client = group.start("iperf3 -c", pair.command(SENDER, ["iperf3", "-c", pair.receiver, *options]))
        give_up_at = time.monotonic() + omit_s + whole_s + _GRACE_S

        def ended() -> IperfFlow:
            group.turn_while(lambda: client.status is None, within_s=give_up_at - time.monotonic())
            if client.status is None:
                raise BenchError(f"iperf3 ({algorithm}) did not end in time; try again when the machine is idle")
            return figures(json.loads(log.read_text()), algorithm=algorithm)

        yield ended


def figures(report: dict[str, Any], *, algorithm: str) -> IperfFlow:
    """Read iperf3's report. Raises BenchError for an incomplete one."""
    if "error" in report:
        raise BenchError(f"iperf3 ({algorithm}): {report['error']}")
    end = report["end"]
    used = {end["sender_tcp_congestion"], end["receiver_tcp_congestion"]}
    if end["sender_tcp_congestion"] != algorithm:
        raise BenchError(f"iperf3 ran {', '.join(sorted(used))} instead of {algorithm}; is it in the kernel?")
    return IperfFlow.of(report)


def _await_listener(group: ProcessGroup, pair: TwoHosts) -> None:
    _, netns = pair.namespaces

    def is_listening() -> bool:
        group.require_running()
        return in_namespace(netns, lambda: listens(PORT))

    wait_until(is_listening, within_s=LISTEN_BOUND_S, missing="iperf3 -s did not listen")


def listens(port: int) -> bool:
    """Whether something listens on a TCP port in the calling thread's namespace."""
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            if state == _TCP_LISTEN and int(local.rpartition(":")[2], 16) == port:
                return True
    return False
