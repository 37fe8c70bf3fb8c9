"""What a driver asks of its core and sends, in order: its turns as they are seen from outside."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from srd.io import syscalls
from srd.proto.events import Event
from tests.srd.io.node import Node, join, loopback_sockets, node


class TracedSocket(socket.socket):
    """A socket that notes the control packets that it sends."""

    steps: list[str]

    def sendto(self, *arguments: Any) -> int:
        self.steps.append("ack")
        return super().sendto(*arguments)


class Trace:
    """The steps of a node's driver.

    read, controls: the core gets data packets, control packets; event: one is delivered; deadlines: the core handles
    timeouts, once in each turn that reads; idle: the core has nothing more to send; data, ack: a batch of bursts and a
    control packet leave.
    """

    def __init__(self, traced: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self.read_bytes = [0]
        """Payload that each turn has read."""
        core, fds = traced.core, {sock.fileno() for sock in traced.sockets}
        handle_packets, handle_timeout, poll_transmit = core.handle_packets, core.handle_timeout, core.poll_transmit
        sendmmsg = syscalls.sendmmsg

        def reading(datagrams: Any, *, controls: Any, **named: Any) -> Any:
            self.steps += ["read"] * bool(datagrams) + ["controls"] * bool(controls)
            self.read_bytes[-1] += sum(each.payload_bytes for each in datagrams)
            return handle_packets(datagrams, controls=controls, **named)

        def handling(now: float) -> None:
            self.steps.append("deadlines")
            self.read_bytes.append(0)
            handle_timeout(now)

        def polling(*arguments: Any, **named: Any) -> Any:
            if (out := poll_transmit(*arguments, **named)) is None:
                self.steps.append("idle")
            return out

        def sending(fd: int, *, messages: int, count: int) -> int:
            if fd in fds:
                self.steps.append("data")
            return sendmmsg(fd, messages=messages, count=count)

        monkeypatch.setattr(core, "handle_packets", reading)
        monkeypatch.setattr(core, "handle_timeout", handling)
        monkeypatch.setattr(core, "poll_transmit", polling)
        monkeypatch.setattr(syscalls, "sendmmsg", sending)
        traced.reacts = self._on_event
        for sock in traced.sockets:
            assert isinstance(sock, TracedSocket)
            sock.steps = self.steps

    def _on_event(self, _event: Event) -> None:
        self.steps.append("event")

    def of(self, *kinds: str) -> str:
        """Return the steps of some kinds."""
        return " ".join(step for step in self.steps if step in kinds)


@asynccontextmanager
async def traced(
    monkeypatch: pytest.MonkeyPatch, *, paths: int = 1, poll_s: tuple[float, float] = (0, 0), **options: Any
) -> AsyncIterator[tuple[Node, Node, Trace]]:
    """Give two nodes, of which the first has connected to the second, and the steps of the second."""
    sockets: list[socket.socket] = [TracedSocket(fileno=sock.detach()) for sock in loopback_sockets(paths)]
    async with (
        node(accepting=True, paths=paths, sockets=sockets, adaptive_poll_s=poll_s[1], **options) as two,
        node(accepting=False, paths=paths, adaptive_poll_s=poll_s[0]) as one,
    ):
        trace = Trace(two, monkeypatch)
        await join(one, two)
        yield one, two, trace
