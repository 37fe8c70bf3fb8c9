"""File: `srd send` to `srd recv` of a file in the page cache, beside the line rate of the same endpoints.

Over a veth pair with segmentation offload, MTU 9000, in plain text and encrypted. `*_gbps`: the file's bytes over the
time of `srd send` from its connect to the VERDICT: with the handshake, both ends' hashes and the receiver's fsync, but
without the start of the processes. `*_line_gbps`: goodput of bulk messages from memory to memory in the same round
(`srd perf`). `*_over_line_ratio`: the one over the other; 0.25 to 0.40 were measured in plain text on two
processors, which the hashes and the file system share with both loops, and the bound is below that. `cpu_s_per_gb`:
CPU time of both processes, user and system, with their start, per 10^9 bytes.

`small_files_s`: the time of `srd send` of a directory with SMALL_FILES files of up to 8 KiB, encrypted, each synced and
named at the receiver. It is bound by the file system, which makes three entries for each, more than by the network.

The file is in the page cache and synced. The received file finds memory in the page cache that was touched before
(scripts/harness/warm_memory.py). Each received file is compared with the source byte by byte after its transfer, and
removed; so is each small one.
"""

from __future__ import annotations

import filecmp
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from scripts.benches.case import CaseOptions
from scripts.benches.outcome import Round, Wanted, in_turn
from scripts.benches.veth import iperf
from scripts.benches.veth.iperf import IperfFlow
from scripts.harness.client_server import python, run_both
from scripts.harness.drops import no_drops
from scripts.harness.errors import BenchError
from scripts.harness.perf import START_S
from scripts.harness.two_hosts import TwoHosts, veth_pair
from scripts.harness.warm_memory import warm_memory

WANTED: Final = (
    Wanted("file_over_line_ratio", ">=", 0.2, over="median"),
    Wanted("small_files_s", "<=", 2.0, over="median"),
)
ROUNDS: Final = 3
SECONDS: Final = 2.0
"""Of the bulk messages."""
FILE_BYTES: Final = 1 << 30
SMALL_FILES: Final = 1000
_SMALL_BYTES: Final = 8 << 10
DIRECTORY: Final = Path("/var/tmp")  # noqa: S108 - a directory of its own is made in it
"""Where the files go by default: on a disk, as /tmp often is not."""
SLOWEST_BPS: Final = 100e6
"""A transfer that is slower is given up."""
_SEED: Final = 1
_BLOCK_BYTES: Final = 16 << 20
_MODES: Final = (("file", True), ("secure_file", False))
"""Prefix of the figures, and whether in plain text."""


def rounds(request: CaseOptions) -> Iterator[Round]:
    """Make so many rounds; BenchError is raised for what the file system refuses."""
    try:
        yield from _rounds(
            request.runs or ROUNDS, directory=request.directory or DIRECTORY, seconds=request.seconds or SECONDS
        )
    except OSError as error:
        raise BenchError(str(error)) from None


def _rounds(count: int, *, directory: Path, seconds: float) -> Iterator[Round]:
    with (
        veth_pair(mtu=9000, offload=True) as two,
        TemporaryDirectory(prefix="srd-bench-", dir=directory) as made,
        warm_memory(3 * FILE_BYTES),  # for the source, for what is received, and for what both processes need
    ):
        source = Path(made, "source.bin")
        _write(source)
        small = Path(made, "small")
        _write_small(small)
        for number in range(1, count + 1):
            figures = dict[str, float]()
            for name, plain in in_turn(_MODES, number=number):
                with no_drops(two.namespaces, during=name):
                    line_gbps = iperf.ours(two, seconds=seconds, plain=plain).gbps
                    flow = _transfer(two, source, plain=plain)
                figures |= flow.named(f"{name}_{{}}")
                figures |= {f"{name}_line_gbps": line_gbps, f"{name}_over_line_ratio": flow.gbps / line_gbps}
            figures["small_files_s"] = _transfer_small(two, small)
            yield Round(number, figures)


def file_system(directory: Path) -> str:
    """Return the type of the file system that a directory is on, as in /proc/self/mountinfo."""
    device = directory.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2] == wanted:
            return file_system.split()[0]
    return "unknown"


def _write(path: Path) -> None:
    """Make the file: random, in the page cache, and clean, so that no writing back disturbs the transfers."""
    random = np.random.default_rng(_SEED)
    with path.open("wb") as file:
        for _ in range(FILE_BYTES // _BLOCK_BYTES):
            file.write(random.bytes(_BLOCK_BYTES))
        file.flush()
        os.fsync(file.fileno())


def _write_small(directory: Path) -> None:
    random = np.random.default_rng(_SEED)
    directory.mkdir()
    for number in range(SMALL_FILES):
        (directory / f"{number}.bin").write_bytes(random.bytes(int(random.integers(_SMALL_BYTES))))


def _sent_s(two: TwoHosts, source: Path, output: str, *, plain: bool, bound_s: float) -> float:
    options = ["--json-lines", *(["--plain"] if plain else [])]
    _, sent = run_both(
        two,
        server=python("srd", "recv", "-B", two.receiver, "-p", "0", "--output", output, "--once", *options),
        client=lambda host, port: python("srd", "send", str(source), f"{host}:{port}", *options),
        bound_s=START_S + bound_s,
    )
    return float(sent["seconds"])


def _transfer_small(two: TwoHosts, source: Path) -> float:
    """Return the time for a directory of small files. Raises BenchError for a damaged or missing one."""
    with TemporaryDirectory(prefix="received-", dir=source.parent) as output:
        sent_s = _sent_s(two, source, output, plain=False, bound_s=60.0)
        names = os.listdir(source)  # noqa: PTH208 - names, not paths
        _, mismatch, errors = filecmp.cmpfiles(source, Path(output, source.name), names, shallow=False)
        if mismatch or errors:
            raise BenchError(
                f"srd recv stored {len(mismatch)} other files than were sent, and {len(errors)} not at all"
            )
    return sent_s


def _transfer(two: TwoHosts, source: Path, *, plain: bool) -> IperfFlow:
    """Return the goodput, and the CPU time per GB. Raises BenchError for a damaged byte."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with TemporaryDirectory(prefix="received-", dir=source.parent) as output:
        sent_s = _sent_s(two, source, output, plain=plain, bound_s=FILE_BYTES * 8 / SLOWEST_BPS)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if not filecmp.cmp(source, Path(output, source.name), shallow=False):
            raise BenchError("srd recv stored other bytes than were sent")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return IperfFlow(8 * FILE_BYTES / sent_s / 1e9, cpu_s / (FILE_BYTES / 1e9))
