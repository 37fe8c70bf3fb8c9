"""Trace files of a transfer with losses, in virtual time: both ends'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from netns.netem.shape import Shape
from srd.proto.work_request import WorkRequest
from srd.qlog.writer import TraceWriter
from tests.simulation import Network, completed

MIB = 1 << 20


def write(directory: Path) -> tuple[Path, Path]:
    """Trace a transfer of 4 MiB over paths that lose packets, one of which dies, and the peer's orderly end."""
    a, b = directory / "a.sqlog", directory / "b.sqlog"
    with TraceWriter(a, now=100.0, title="sender") as at_a, TraceWriter(b, now=100.0, title="receiver") as at_b:
        network = Network(seed=5, shape=Shape(delay_us=500, loss_percent=2), traces={"a": at_a, "b": at_b})
        number, _ = network.connect()
        network.a.core.post(number, WorkRequest(request=1, length=4 * MIB))
        core = network.a.core.peer(number)
        network.run(until=lambda: core.sender.packets > 200, seconds=5)
        network.dead.add(1)
        network.run(until=lambda: bool(completed(network.a)), seconds=20)
        network.a.core.close(number, now=network.now)
        network.run(seconds=2)
    return a, b


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records as qvis splits a file: at each 0x1E; what is left of white space is JSON."""
    texts = path.read_text().split("\x1e")
    return [json.loads(text) for text in texts if text.strip()]
