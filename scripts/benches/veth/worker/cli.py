"""The command line of the roles."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import click

from scripts.benches.veth.worker import bulk, handshakes, path, pingpong, rate, streams, tcp_bulk
from scripts.benches.veth.worker import peers as peers_role
from scripts.harness.errors import BenchError
from srd.cli.options import run
from srd.errors import SrdError


@click.group()
def main() -> None:
    """Run one end of a bench on real sockets; prints its figures as events."""


def _run(role: Coroutine[Any, Any, int], *, runner: Callable[[Coroutine[Any, Any, int]], int] = run) -> None:
    """Run with `runner`, by default on the event loop of the daemons (uvloop); print an error as one line."""
    try:
        sys.exit(runner(role))
    except (BenchError, SrdError) as error:
        raise click.ClickException(str(error)) from error


_plain = click.option("--plain", is_flag=True, help="Do not encrypt.")
_sizes = click.option(
    "--bytes", "sizes", type=click.IntRange(min=1), multiple=True, required=True, help="Size of a message; repeatable."
)


@main.command()
@click.argument("host")
@_plain
def bulk_receive(host: str, *, plain: bool) -> None:
    """Receive bulk turns at HOST, and check every byte."""
    _run(bulk.receive(host, plain=plain))


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--seconds", type=float, required=True)
@_plain
def bulk_send(host: str, port: int, seconds: float, *, plain: bool) -> None:
    """Send bulk turns for SECONDS of timed sending."""
    _run(bulk.send(host, port=port, seconds=seconds, plain=plain))


@main.command()
@click.argument("host")
@click.option("--mtu", type=int, required=True)
def quic_receive(host: str, mtu: int) -> None:
    """Receive aioquic's turns at HOST, and check every byte."""
    from scripts.benches.veth.worker import quic  # noqa: PLC0415 - aioquic is needed only here

    _run(quic.receive(host, mtu=mtu), runner=asyncio.run)  # on uvloop aioquic is slower, and more so turn by turn


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--mtu", type=int, required=True)
@click.option("--seconds", type=float, required=True)
def quic_send(host: str, port: int, mtu: int, seconds: float) -> None:
    """Send aioquic's turns for SECONDS of timed sending."""
    from scripts.benches.veth.worker import quic  # noqa: PLC0415 - as above

    _run(quic.send(host, port=port, seconds=seconds, mtu=mtu), runner=asyncio.run)


@main.command()
@click.argument("host")
@click.option("--message-bytes", type=int, required=True)
@click.option("--peers", type=int, required=True)
def rate_receive(host: str, message_bytes: int, peers: int) -> None:
    """Receive small messages at HOST, and check every one."""
    _run(rate.receive(host, message_bytes=message_bytes, peers=peers))


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--message-bytes", type=int, required=True)
@click.option("--peers", type=int, required=True)
@click.option("--seconds", type=float, required=True)
def rate_send(host: str, port: int, message_bytes: int, peers: int, seconds: float) -> None:
    """Send small messages for SECONDS of timed sending."""
    _run(rate.send(host, port=port, seconds=seconds, message_bytes=message_bytes, peers=peers))


_kind = click.option("--kind", type=click.Choice(streams.KINDS), required=True)
_count = click.option("--count", type=click.IntRange(min=1), required=True, help="Streams, or tasks that send.")


@main.command()
@click.argument("host")
@_kind
@_count
def streams_receive(host: str, *, kind: str, count: int) -> None:
    """Receive ordered bytes at HOST, and check every one in every other turn."""
    _run(streams.receive(host, kind=kind, count=count))


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@_kind
@_count
@click.option("--seconds", type=float, required=True)
def streams_send(host: str, port: int, *, kind: str, count: int, seconds: float) -> None:
    """Send ordered bytes for SECONDS of timed sending."""
    _run(streams.send(host, port=port, seconds=seconds, kind=kind, count=count))


@main.command()
@click.argument("host")
@_sizes
@click.option("--busy-poll", is_flag=True)
@_plain
def ping_receive(host: str, *, sizes: tuple[int, ...], busy_poll: bool, plain: bool) -> None:
    """Answer messages at HOST."""
    _run(pingpong.receive(host, largest=max(sizes), busy_poll=busy_poll, plain=plain))


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--seconds", type=float, required=True)
@_sizes
@click.option("--busy-poll", is_flag=True)
@click.option("--loaded", is_flag=True)
@_plain
def ping_send(
    host: str, port: int, seconds: float, *, sizes: tuple[int, ...], busy_poll: bool, loaded: bool, plain: bool
) -> None:
    """Measure round trips for SECONDS."""
    sending = pingpong.send(
        host, port=port, sizes=sizes, seconds=seconds, busy_poll=busy_poll, loaded=loaded, plain=plain
    )
    _run(sending)


@main.command()
@click.argument("host")
@_plain
def handshakes_receive(host: str, *, plain: bool) -> None:
    """Accept peers at HOST."""
    _run(handshakes.receive(host, plain=plain))


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--seconds", type=float, required=True)
@_plain
def handshakes_send(host: str, port: int, seconds: float, *, plain: bool) -> None:
    """Open and close peers for SECONDS, and send a flood of HELLOs."""
    _run(handshakes.send(host, port=port, seconds=seconds, plain=plain))


@main.command()
@click.argument("host")
@_sizes
def tcp_ping_receive(host: str, *, sizes: tuple[int, ...]) -> None:
    """Answer messages at HOST, over kernel TCP."""
    pingpong.tcp_receive(host, sizes=sizes)


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--seconds", type=float, required=True)
@_sizes
def tcp_ping_send(host: str, port: int, seconds: float, *, sizes: tuple[int, ...]) -> None:
    """Measure round trips over kernel TCP for SECONDS."""
    pingpong.tcp_send(host, port=port, sizes=sizes, seconds=seconds)


@main.command()
@click.argument("host")
@click.option("--mptcp", is_flag=True)
def tcp_bulk_receive(host: str, *, mptcp: bool) -> None:
    """Read one bulk flow at HOST, over kernel TCP."""
    tcp_bulk.receive(host, mptcp=mptcp)


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--seconds", type=float, required=True)
@click.option("--bind", help="Local address.")
@click.option("--mptcp", is_flag=True)
def tcp_bulk_send(host: str, port: int, seconds: float, bind: str | None, *, mptcp: bool) -> None:
    """Write a bulk flow for SECONDS, over kernel TCP."""
    tcp_bulk.send(host, port=port, seconds=seconds, mptcp=mptcp, bind=bind)


@main.command()
@click.argument("host")
@click.argument("workloads", nargs=-1, required=True)
def path_answer(host: str, workloads: tuple[str, ...]) -> None:
    """Answer at HOST, by messages and by streams over TCP."""
    _run(path.answer(host, workloads=workloads))


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--turns", type=click.IntRange(min=1), required=True)
@click.option("--seconds", type=float, required=True)
@click.option("--kind", "kinds", type=click.Choice(path.KINDS), multiple=True, default=path.KINDS)
@click.option("--control", type=click.Path(path_type=Path), help="Tell perf here when what counts begins.")
@click.argument("workloads", nargs=-1, required=True)
def path_ask(
    host: str,
    port: int,
    turns: int,
    seconds: float,
    *,
    kinds: tuple[str, ...],
    control: Path | None,
    workloads: tuple[str, ...],
) -> None:
    """Measure TURNS of each kind and workload, of SECONDS each."""
    asking = path.ask(host, port=port, turns=turns, seconds=seconds, workloads=workloads, kinds=kinds, control=control)
    _run(asking)


@main.command()
@click.argument("host")
def peers_receive(host: str) -> None:
    """Receive messages from any number of peers."""
    _run(peers_role.receive(host))


@main.command()
@click.argument("host")
@click.argument("port", type=int)
@click.option("--peers", type=int, required=True)
@click.option("--trace-memory", is_flag=True)
def peers_send(host: str, port: int, peers: int, *, trace_memory: bool) -> None:
    """Connect PEERS peers, and send to each in turn."""
    _run(peers_role.send(host, port=port, peers=peers, trace_memory=trace_memory))
