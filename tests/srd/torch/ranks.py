"""Ranks for tests: forked processes, which torch need not be imported in again, on loopback."""

from __future__ import annotations

import multiprocessing
import os
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")

import torch.distributed as dist  # noqa: E402

from srd.torch import GroupError, memory, staging  # noqa: E402 - and it registers the backend
from srd.torch.device import KINDS as kinds  # noqa: E402, N811
from srd.torch.mesh import Mesh, leaf_and_column  # noqa: E402
from srd.torch.registered import TARGET  # noqa: E402
from srd.torch.rendezvous import UNRESPONSIVE_AFTER_S, join, listen  # noqa: E402
from srd.torch.staging import Staging  # noqa: E402
from srd.torch.transfers import (  # noqa: E402
    _FAREWELL,
    _GRANTED,
    _HEADER,
    EAGER_WINDOW_BYTES,
    LEAST_BYTES,
    MAX_ANNOUNCED,
    MAX_GRANTS,
    MAX_REASON_BYTES,
    NUMBERS,
    PIECE_BYTES,
    Envelope,
    In,
    RankLink,
)
from srd.torch.work import Work  # noqa: E402
from tests.patience import PATIENCE_S  # noqa: E402

__all__ = [
    "EAGER_WINDOW_BYTES",
    "FAREWELL",
    "LEAST_BYTES",
    "MAX_ANNOUNCED",
    "MAX_GRANTS",
    "MAX_REASON_BYTES",
    "NUMBERS",
    "PIECE_BYTES",
    "UNRESPONSIVE_AFTER_S",
    "Envelope",
    "GroupError",
    "In",
    "Mesh",
    "RankLink",
    "Staging",
    "Work",
    "dist",
    "grant",
    "header",
    "join",
    "kinds",
    "leaf_and_column",
    "listen",
    "memory",
    "run",
    "staging",
    "torch",
]

Body = Callable[..., Any]
FAREWELL = _FAREWELL


def header(number: int, *, tag: int, length: int, follows: bool = True) -> bytes:
    """Return how an envelope begins."""
    return _HEADER.pack(number, tag, follows, length)


def grant(identity: int, *, key: int = 0, offset: int = 0) -> bytes:
    """Return how a transfer is granted."""
    return _GRANTED.pack(identity, False) + TARGET.pack(key, offset)  # noqa: FBT003


def _run(
    body: Body, arguments: tuple[Any, ...], backend: str, store: Path, rank: int, world: int, out: Connection, leaf: str
) -> None:
    try:
        os.environ.pop("MASTER_ADDR", None)
        os.environ["SRD_LEAF"] = leaf
        torch.set_num_threads(1)
        dist.init_process_group(backend, store=dist.FileStore(str(store), world), rank=rank, world_size=world)
        result = body(*arguments)
        dist.destroy_process_group()
        out.send((result, None))
    except BaseException:  # noqa: BLE001 - the test's process shows it
        out.send((None, traceback.format_exc()))
    finally:
        out.close()
        os._exit(0)


def run(
    body: Body,
    *arguments: Any,
    world: int,
    store: Path,
    backend: str = "srd",
    lost: tuple[int, ...] = (),
    leaves: str = "",
) -> list[Any]:
    """Run `body(*arguments)` as each rank; return what each returned.

    `lost`: ranks that return nothing; `leaves`: a letter for each rank's.
    """
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks with threads: torch's are idle
        for rank in range(world):
            here, there = context.Pipe(duplex=False)
            process = context.Process(
                target=_run,
                args=(body, arguments, backend, store, rank, world, there, leaves[rank : rank + 1]),
                daemon=True,
            )
            process.start()
            there.close()
            pipes.append(here)
            processes.append(process)
    results, errors = [], []
    try:
        for rank, pipe in enumerate(pipes):
            assert pipe.poll(PATIENCE_S), f"rank {rank} has not ended"
            try:
                result, error = pipe.recv()
            except EOFError:
                processes[rank].join(PATIENCE_S)
                result, error = None, f"it has died: exit code {processes[rank].exitcode}"
            if error is not None and rank not in lost:
                errors.append(f"rank {rank}: {error}")
            results.append(result)
    finally:
        for process in processes:
            process.kill()
            process.join()
    assert not errors, "\n".join(errors)
    return results
