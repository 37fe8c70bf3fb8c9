"""A volume on three servers of a lab, written and verified by fio while a server is killed and a spine dies.

Each host is at a leaf of its own, with four spines between them. The volume is encrypted at the client's host; its
servers are in three racks. fio writes and reads blocks of 4 to 64 KiB at random, and compares every one with its
checksum: soon after it was written, and all of them at the end. Meanwhile a server is ended by SIGKILL and started
again on its disk, and a spine drops everything without a word. At the end the servers check their blocks (scrub).
"""

from __future__ import annotations

import time
from typing import Final

import click

from netns.faults import faults
from netns.netem.shape import Shape
from scripts.harness.errors import BenchError
from scripts.harness.fio import FioJob, FioResult
from scripts.harness.program import program
from scripts.harness.volume import VolumeLab, volume_lab

LAB_NAME: Final = "volume-demo"
LINK: Final = Shape(delay_us=100, rate_bps=1_000_000_000)
SIZE_BYTES: Final = 64 << 20
WORK: Final = (  # at this rate 45 MiB are written in 15 s, on the fastest machine, too: longer than all pauses
    "--rw=randrw", "--rwmixread=30", "--bssplit=4k/30:16k/50:64k/20", f"--size={SIZE_BYTES}", "--iodepth=8",
    "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=64", "--fsync=64", "--randseed=1", "--rate=3m,3m",
)  # fmt: skip
PAUSE_S: Final = 3.0
"""Of undisturbed work, and between the faults."""
REPAIR_S: Final = 40.0
"""For the replica that was away to get all that it lacks."""


@program("demo-volume")
def command() -> None:
    """Write and verify an encrypted volume on three servers while one is killed and a spine dies."""
    with volume_lab(LAB_NAME, shape=LINK, size_bytes=SIZE_BYTES) as volume:
        lab = volume.lab
        click.echo(f"fabric: {lab.backend}, {len(lab.topology.spines)} spines; servers: {', '.join(volume.servers)}")
        with volume.attached():
            result = _work(volume)
            _show(volume, result)
        if result.error or result.wrong:
            raise BenchError(f"fio found {result.wrong} wrong blocks, and ended with errno {result.error}")


def _work(volume: VolumeLab) -> FioResult:
    began_at = time.monotonic()

    def say(text: str) -> None:
        click.echo(f"{time.monotonic() - began_at:5.1f} s  {text}")

    job = volume.fio.start(volume.uri, *WORK)
    say("fio writes, reads and verifies")
    server, spine = list(volume.servers)[1], volume.lab.topology.spines[0]
    _pause(job)
    volume.kill_server(server)
    say(f"the server at {server} was killed")
    _pause(job)
    failure = faults.fail(volume.lab, spine)
    say(f"{spine} drops everything")
    _pause(job)
    volume.start_server(server)
    say(f"the server at {server} was started again, on its disk")
    _pause(job)
    faults.repair(volume.lab, [failure])
    say(f"{spine} works again")
    result = job.ended()
    say("fio has ended")
    return result


def _pause(job: FioJob) -> None:
    time.sleep(PAUSE_S)
    job.require_running()


def _show(volume: VolumeLab, result: FioResult) -> None:
    for direction in ("read", "write"):
        median_us, tail_us = (result.latency_us(direction, percent) for percent in (50, 99.9))
        click.echo(
            f"{direction:5}  {result.iops(direction):6.0f} IOPS  p50 {median_us:8.0f} us  p99.9 {tail_us:8.0f} us"
        )
    click.echo(f"longest request {result.longest_ms():.0f} ms; wrong blocks {result.wrong}; errors {result.error}\n")
    volume.await_repair(within_s=REPAIR_S)
    click.echo(volume.status_text())
    click.echo(volume.scrub())
