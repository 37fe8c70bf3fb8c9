"""A rank of a job of torch.distributed: times of all-reduces, or a small model that is trained by DDP.

    python -m scripts.harness.torch_rank srd sizes 4K:50 4M:5
    python -m scripts.harness.torch_rank gloo steps 1M:200
    python -m scripts.harness.torch_rank srd train --steps 200

RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and RANK_HOSTS as netns.launcher sets them. Prints JSON lines on stdout:
`iteration` for each all-reduce, `step` for each step of a training, with the time since the epoch. Every result of an
all-reduce is compared with the exact sum: a wrong one is exit status 1.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import click
import torch
import torch.distributed as dist

import srd.torch  # noqa: F401 - registers the backend
from netns.base.output import emit
from netns.base.units import parse_size

WARM_UP: Final = 3
TIMED_OUT: Final = 3
"""Exit status when a collective fails: what it said is the last line of stderr."""
FEATURES: Final = 64
CLASSES: Final = 10
HIDDEN: Final = 512
BATCH: Final = 64
RATE: Final = 0.1


def create_gloo(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    """Make a group of gloo's at this rank's own address.

    By itself it takes the address of the machine's name, or the first one of an interface: a host of a lab has several,
    of which the fabric carries one.
    """
    options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - there is no other way to give an address
    options._timeout = timeout  # noqa: SLF001
    host = os.environ["RANK_HOSTS"].split(",")[int(os.environ["RANK"])]
    options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]  # noqa: SLF001
    return dist.ProcessGroupGloo(store, rank, size, options)


def timed(tensor: Any) -> float:
    """All-reduce ones; return how long it took. Exits when the sum is wrong."""
    tensor.fill_(1)
    began = time.perf_counter()
    dist.all_reduce(tensor)
    seconds = time.perf_counter() - began
    if not bool((tensor == dist.get_world_size()).all()):
        sys.exit("wrong sum")
    return seconds


def sizes(work: Sequence[tuple[int, int]]) -> None:
    """All-reduce tensors of each size so often, after a few that do not count."""
    number = 0
    for size_bytes, count in work:
        tensor = torch.empty(size_bytes // 4)
        for _ in range(WARM_UP):
            timed(tensor)
        for _ in range(count):
            dist.barrier()
            emit("iteration", iteration=number, seconds=timed(tensor))
            number += 1


def steps(work: Sequence[tuple[int, int]]) -> None:
    for size_bytes, count in work:
        tensor = torch.empty(size_bytes // 4)
        for step in range(count):
            emit("step", step=step, seconds=timed(tensor), at=time.time())


def train(count: int) -> None:
    """Train a small classifier by DDP, with the same data for each step whatever the backend."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, CLASSES),
    )
    teacher = torch.randn(FEATURES, CLASSES)
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    torch.manual_seed(1 + rank)
    for step in range(count):
        began = time.perf_counter()
        given = torch.randn(BATCH, FEATURES)
        loss = torch.nn.functional.cross_entropy(model(given), (given @ teacher).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        seconds = time.perf_counter() - began
        emit("step", step=step, seconds=seconds, at=time.time(), loss=float(shown) / dist.get_world_size())


@click.command()
@click.argument("backend", type=click.Choice(["srd", "gloo"]))
@click.argument("mode", type=click.Choice(["sizes", "steps", "train"]))
@click.argument("work", nargs=-1, metavar="[SIZE:COUNT]...")
@click.option("--steps", "count", default=100, show_default=True, help="Of a training.")
def main(*, backend: str, mode: str, work: tuple[str, ...], count: int) -> None:
    """Take part in a job."""
    torch.set_num_threads(1)  # ranks share the machine with each other, and with the fabric
    dist.Backend.register_backend("gloo_here", create_gloo, devices=["cpu"])
    dist.init_process_group("gloo_here" if backend == "gloo" else backend)
    pairs = [(parse_size(size), int(times)) for size, _, times in (each.partition(":") for each in work)]
    emit("ready")
    try:
        {"sizes": lambda: sizes(pairs), "steps": lambda: steps(pairs), "train": lambda: train(count)}[mode]()
    except RuntimeError as error:
        print(str(error).splitlines()[0], file=sys.stderr, flush=True)
        os._exit(TIMED_OUT)  # gloo waits for what has failed, or ends in a signal
    emit("cpu", seconds=time.process_time())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
