"""Volume: a block device on three servers over SRD, beside the same store over TCP and beside nbdkit's memory plugin.

A host with the card's end and three with a server each, every one at a leaf of its own, four spines between them. A
volume of 64 MiB with three replicas, encrypted at the card's end (XTS), read and written by fio over NBD. The servers'
disks are in memory (`--directory`: elsewhere), as a disk's `fdatasync` would hide the network. TCP: the same servers,
the same writer, the same front; capsules on one cubic connection a server. nbdkit: its memory plugin at a server's
host, over TCP; it has no replicas, no checksums, no log and no encryption. Neither end encrypts on the way.

Without shapes (`clean`): requests of 16 KiB at random, one at a time (`read_p50_us`, `read_p999_us`) and 16 at a time
(`_iops`), and of 1 MiB, 4 at a time (`_mb_per_s`). `read_p50_over_nbdkit_ratio`: of the medians, one at a time.
On links of 250 Mbit/s and 0.5 ms (`lossy_`): the same one at a time with 1 % loss at each spine;
`read_p999_lossy_over_tcp_ratio`. `_fraction`: of the reads that took at most so long, and longer than half of it;
`scripts/benches/picture.py` draws them. Then a spine drops everything, without loss before:
`longest_io_ms_blackhole` and `failed_ios_blackhole` of a mixed load, 4 at a time.
Without shapes again: fio writes blocks and reads them soon after, while a server is killed and started again:
`stale_reads` is 1 if it has read something else. It writes blocks, a server is killed, the volume is detached and
attached again, and all are read: `lost_writes` is 1 if one is not what was written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from netns.faults import faults
from netns.lab.state import Failure
from netns.netem.shape import Shape
from netns.programs import ending_with_us
from scripts.benches.case import CaseOptions
from scripts.benches.outcome import Figures, Round, Wanted
from scripts.benches.tunnel.fabric import loss
from scripts.benches.volume.measure import SIZE_BYTES, FioMeasure
from scripts.harness.errors import BenchError
from scripts.harness.needs import EVERYTHING, Need, lacks
from scripts.harness.process import ProcessGroup
from scripts.harness.volume import NAME, PORT, READY_S, VolumeLab, volume_lab
from scripts.harness.waiting import wait_until
from scripts.harness.worker import worker

WANTED: Final = (
    Wanted("read_p50_over_nbdkit_ratio", "<=", 2, over="median"),
    Wanted("read_p999_lossy_over_tcp_ratio", "<=", 0.3, over="median"),
    Wanted("failed_ios_blackhole", "<=", 0),
    Wanted("longest_io_ms_blackhole", "<=", 100, over="median"),
    Wanted("lost_writes", "<=", 0),
    Wanted("stale_reads", "<=", 0),
)
NEEDS: Final = (Need("fio", EVERYTHING), Need("nbdkit", ("read_p50_over_nbdkit_ratio",)))
SECONDS: Final = 2.0
ROUNDS: Final = 3
LINK: Final = Shape(delay_us=500, rate_bps=250_000_000)
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - directories in it have names of their own
LOSS_PERCENT: Final = 1.0
LOSSY_TIMES: Final = 5
"""As long as without loss, so that p99.9 is of more than a thousand requests."""
PAUSE_S: Final = 1.5
_MODULE: Final = "scripts.benches.volume.tcp"


def rounds(request: CaseOptions) -> Iterator[Round]:
    if reason := lacks("fio"):
        raise BenchError(reason)
    for number in range(1, (request.runs or ROUNDS) + 1):
        yield _round(number, seconds=request.seconds or SECONDS, directory=request.directory or MEMORY)


def _round(number: int, *, seconds: float, directory: Path) -> Round:
    ours: dict[str, float] = {}
    baselines: dict[str, dict[str, float]] = {"tcp": {}}
    with _volume(None, directory=directory) as volume:
        with volume.attached():
            measure = _filled(volume, volume.uri, seconds=seconds)
            ours |= measure.all() | {"stale_reads": measure.verified(*_server_faults(volume), pause_s=PAUSE_S)}
        ours["lost_writes"] = _lost(volume, seconds=seconds)
        with _over_tcp(volume) as uri:
            baselines["tcp"] |= _filled(volume, uri, seconds=seconds).all()
        if not lacks("nbdkit"):
            with _nbdkit(volume) as uri:
                baselines["nbdkit"] = _filled(volume, uri, seconds=seconds).all()
            ours["read_p50_over_nbdkit_ratio"] = ours["read_p50_us"] / baselines["nbdkit"]["read_p50_us"]
    with _volume(LINK, directory=directory) as volume:
        with volume.attached():
            ours |= _shaped(volume, _filled(volume, volume.uri, seconds=seconds * LOSSY_TIMES))
        with _over_tcp(volume) as uri:
            baselines["tcp"] |= _shaped(volume, _filled(volume, uri, seconds=seconds * LOSSY_TIMES))
    tcp_us = baselines["tcp"]["lossy_read_p999_us"]
    ours["read_p999_lossy_over_tcp_ratio"] = ours["lossy_read_p999_us"] / tcp_us
    return Round(number, ours, baselines)


def _volume(shape: Shape | None, *, directory: Path) -> AbstractContextManager[VolumeLab]:
    name = f"bench-volume-{os.getpid()}"
    return volume_lab(name, shape=shape, size_bytes=SIZE_BYTES, below=directory, encrypted=False)


@contextmanager
def _over_tcp(volume: VolumeLab) -> Iterator[str]:
    """Have a volume of its own over TCP, on servers beside the others; gives its URI."""
    with ProcessGroup() as group:
        servers = []
        for host in volume.servers:
            address = volume.lab.address(host)
            servers.append((address, PORT))
            argv = worker(
                _MODULE, "serve", directory=f"{volume.directory}/tcp-{host}", host=address, port=PORT,
                size_bytes=SIZE_BYTES,
            )  # fmt: skip
            process = group.start(f"TCP server at {host}", volume.lab.command(host, argv))
            group.event(process, "ready", bound_s=READY_S)
        run_dir = volume.directory / "tcp-run"
        argv = worker(_MODULE, "attach", run_dir=str(run_dir), name=NAME, size_bytes=SIZE_BYTES, servers=servers)
        process = group.start("TCP writer", volume.lab.command(volume.client, argv))
        group.event(process, "ready", bound_s=READY_S)
        yield f"nbd+unix:///{NAME}?socket={run_dir}/{NAME}.sock"
    shutil.rmtree(run_dir)
    for host in volume.servers:
        shutil.rmtree(volume.directory / f"tcp-{host}")


@contextmanager
def _nbdkit(volume: VolumeLab) -> Iterator[str]:
    host = next(iter(volume.servers))
    address = volume.lab.address(host)
    argv = ["nbdkit", "--foreground", "--ipaddr", address, "--port", "10809", "memory", str(SIZE_BYTES)]
    with ProcessGroup() as group:
        process = group.start("nbdkit", volume.lab.command(host, argv))
        probe = ending_with_us(volume.lab.command(volume.client, ["nbdinfo", "--size", f"nbd://{address}:10809/"]))
        wait_until(
            lambda: subprocess.run(probe, capture_output=True, check=False).returncode == 0,
            within_s=READY_S,
            missing=f"nbdkit did not serve ({process.last_error})",
        )
        yield f"nbd://{address}:10809/"


def _measure(volume: VolumeLab, uri: str, *, seconds: float) -> FioMeasure:
    return FioMeasure(volume.fio, uri, before=volume.lab.command(volume.client, []), seconds=seconds)


def _filled(volume: VolumeLab, uri: str, *, seconds: float) -> FioMeasure:
    measure = _measure(volume, uri, seconds=seconds)
    measure.fill()
    return measure


def _shaped(volume: VolumeLab, measure: FioMeasure) -> Figures:
    with loss(volume.lab, LOSS_PERCENT):
        found = {f"lossy_{name}": value for name, value in measure.latencies(with_bins=True).items()}
    failures: list[Failure] = []
    dead = measure.through(lambda: failures.append(faults.fail(volume.lab, volume.lab.topology.spines[0])))
    faults.repair(volume.lab, failures)
    return found | {"longest_io_ms_blackhole": dead["longest_ms"], "failed_ios_blackhole": dead["failed"]}


def _server_faults(volume: VolumeLab) -> tuple[Callable[[], object], ...]:
    """Return: kill a server, start it again."""
    host = list(volume.servers)[-1]
    return lambda: volume.kill_server(host), lambda: volume.start_server(host)


def _lost(volume: VolumeLab, *, seconds: float) -> int:
    """Write, kill a server, attach again, and read; return 1 if something else is there."""
    kill, start = _server_faults(volume)
    with volume.attached():
        measure = _measure(volume, volume.uri, seconds=seconds)
        measure.write_checked()
    kill()
    with volume.attached():
        found = measure.is_lost()
    start()
    return found
