"""nitro_emu.efa.perf: what a server takes for a client, and what comparisons see. Whole runs: test_perf_tools.py."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nitro_emu.efa.perf.carrier import LATENCY_DEPTH, Verb, operation_of
from nitro_emu.efa.perf.end import Address, QueuePairEnd
from nitro_emu.efa.perf.session import run_client, run_server
from nitro_emu.efa.verbs import SendOp
from srd.perf.control import VERSION, Control, ControlKind
from srd.perf.errors import PerfError
from srd.perf.sweep.plan import Operation, Sweep, encode
from tests.nitro_emu.card_process import loopback_vf, running_card
from tests.patience import PATIENCE_S

ADDRESS = Address(bytes(range(16)), qpn=3, qkey=1 << 31, mtu_bytes=8900, rkey=7)
RATE, WRITES = encode(Sweep(Operation.RATE)), encode(Sweep(Operation.WRITE))
OPS = {Verb.SEND: SendOp.SEND, Verb.WRITE: SendOp.RDMA_WRITE, Verb.READ: SendOp.RDMA_READ}
ITERATIONS = 20  # besides those that do not count
NO_CLIENTS = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x02{}", b"\0\0\0\x10{"]


@pytest.fixture(scope="module")
def run_dirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Those of two cards."""
    with ExitStack() as cards:
        one, two = (
            cards.enter_context(
                running_card(tmp_path_factory.mktemp(name), vfs=[loopback_vf(more="security: {mode: plain}")])
            )
            for name in "ab"
        )
        yield one, two


def opening(run_dir: Path) -> Any:
    return partial(QueuePairEnd, device="efa_0", run_dir=run_dir, events=False)


@asynccontextmanager
async def serving(run_dir: Path, *, latency: bool) -> AsyncIterator[tuple[int, asyncio.Task[Any]]]:
    """A server: its port and its task."""
    port = asyncio.get_running_loop().create_future()
    server = run_server(
        ("", 0), latency=latency, opened=opening(run_dir), on_listening=port.set_result, on_start=lambda _: None
    )
    task = asyncio.ensure_future(server)
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield await port, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measured(
    run_dirs: tuple[Path, Path], verb: Verb, *, latency: bool, sizes: tuple[int, ...] = (4096,)
) -> list[int]:
    """Run both ends in this process; return the messages of each size, as the server counts them."""
    sweep = Sweep(operation_of(verb, latency=latency), sizes=sizes, iterations=ITERATIONS, verify=True, tx_depth=8)
    async with serving(run_dirs[0], latency=latency) as (port, task):
        client = run_client(
            ("127.0.0.1", port),
            sweep,
            verb,
            opened=opening(run_dirs[1]),
            on_start=lambda _: None,
            on_row=lambda _: None,
        )
        await client
        _, _, counts = await task
    return list(counts)


def shifted(post: Callable[..., None], verb: Verb) -> Callable[..., None]:
    """Return what posts, after some right requests, those of `verb` from a place that is one byte off."""
    posted = 0

    def wrong(self: QueuePairEnd, op: SendOp, offsets: Any, **options: Any) -> None:
        nonlocal posted
        posted += op is OPS[verb]
        if posted > 2 and op is SendOp.RDMA_READ:
            options["remote_offsets"] = options["remote_offsets"] + np.uint64(1)
        elif posted > 2 and op is OPS[verb]:
            offsets = offsets + np.uint64(1)
        post(self, op, offsets, **options)

    return wrong


async def test_each_size_gives_back_the_receive_requests_that_it_used(run_dirs: tuple[Path, Path]) -> None:
    sizes = (64,) * (LATENCY_DEPTH + 2)
    assert len(await measured(run_dirs, Verb.SEND, latency=True, sizes=sizes)) == len(sizes)


@pytest.mark.parametrize("tool", ["pingpong", pytest.param("bw", marks=pytest.mark.long)])
@pytest.mark.parametrize("verb", Verb)
async def test_payload_of_another_place_is_found(
    run_dirs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, verb: Verb, tool: str
) -> None:
    latency = tool == "pingpong"
    (count,) = await measured(run_dirs, verb, latency=latency)
    assert count > ITERATIONS
    monkeypatch.setattr(QueuePairEnd, "post", shifted(QueuePairEnd.post, verb))
    request_of = QueuePairEnd.send_request  # of SENDs one at a time
    monkeypatch.setattr(
        QueuePairEnd, "send_request", lambda self, offset, **options: request_of(self, offset + 1, **options)
    )
    with pytest.raises(PerfError, match="is not what was sent"):
        await measured(run_dirs, verb, latency=latency)


@pytest.mark.parametrize(
    ("request_of", "error"),
    [
        ({"version": VERSION - 1}, "different versions"),
        ({"sweep": None}, "a sweep without its parameters"),
        ({"sweep": encode(Sweep(Operation.LATENCY))}, "the client measures latency, the server bandwidth"),
        ({"verb": "write"}, "asks for 'write'"),
        ({"verb": ["send"]}, r"asks for \['send'\]; there are send, write, read"),
        ({"sweep": encode(Sweep(Operation.RATE, peers=2))}, "asks for 'send'"),
        ({"address": None}, "no address of a queue pair but None"),
        ({"address": ADDRESS.text[2:]}, "no address of a queue pair"),
        ({"address": "no"}, "no address of a queue pair but 'no'"),
        ({"sweep": WRITES, "verb": "write", "address": 3}, "no address of a queue pair but 3"),
    ],
)
async def test_a_request_that_is_none_is_refused(
    run_dirs: tuple[Path, Path], request_of: dict[str, Any], error: str
) -> None:
    async with serving(run_dirs[0], latency=False) as (port, task):
        control = Control(*await asyncio.open_connection("127.0.0.1", port))
        right = {"version": VERSION, "verb": "send", "sweep": RATE, "address": ADDRESS.text}
        await control.send(ControlKind.TEST, **{**right, **request_of})
        with pytest.raises(PerfError, match=error):
            await control.receive(ControlKind.READY)
        control.close()
        with pytest.raises(PerfError, match=error):
            await task


@pytest.mark.parametrize("sent", NO_CLIENTS, ids=["closes", "http", "no message", "half of a message"])
async def test_what_is_no_client_does_not_end_the_server(run_dirs: tuple[Path, Path], sent: bytes) -> None:
    """A scanner of ports, or a check of a load balancer."""
    async with serving(run_dirs[0], latency=True) as (port, task):
        with socket.create_connection(("127.0.0.1", port)) as other:
            other.sendall(sent)
        control = Control(*await asyncio.open_connection("127.0.0.1", port))
        await control.send(ControlKind.TEST, version=0)
        with pytest.raises(PerfError, match="different versions"):
            await control.receive(ControlKind.READY)
        control.close()
        await asyncio.wait([task])


async def test_port_that_is_taken(run_dirs: tuple[Path, Path]) -> None:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        server = run_server(
            ("", port),
            latency=True,
            opened=opening(run_dirs[0]),
            on_listening=lambda _: None,
            on_start=lambda _: None,
        )
        with pytest.raises(PerfError, match=f"port {port}: cannot listen: .*; choose another with --port"):
            await server


async def test_nobody_listens(run_dirs: tuple[Path, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = run_client(
        ("127.0.0.1", port),
        Sweep(Operation.RATE),
        Verb.SEND,
        opened=opening(run_dirs[0]),
        on_start=lambda _: None,
        on_row=lambda _: None,
    )
    with pytest.raises(PerfError, match=f"127.0.0.1 port {port}: .*; start the same command there"):
        await client


def test_address__comes_back() -> None:
    assert Address.of_untrusted(ADDRESS.text) == ADDRESS
