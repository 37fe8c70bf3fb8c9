"""Trace files of a transfer with losses, in virtual time: both ends'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from netns.netem.shape import Shape
from srd.proto.trace import TraceEvent
from srd.qlog.reader import Record
from srd.qlog.writer import TraceWriter
from tests.simulation import connected

MIB = 1 << 20


def write(directory: Path) -> tuple[Path, Path]:
    """Trace a transfer of 4 MiB over paths that lose packets, one of which dies, and the peer's orderly end."""
    a, b = directory / "a.sqlog", directory / "b.sqlog"
    with TraceWriter(a, now=100.0, title="sender") as at_a, TraceWriter(b, now=100.0, title="receiver") as at_b:
        network, number, _ = connected(seed=5, shape=Shape(delay_us=500, loss_percent=2), traces={"a": at_a, "b": at_b})
        network.carry_while_links_die(number, length=4 * MIB, links={1}, packets=200)
        network.a.core.close(number, now=network.now)
        network.run(seconds=2)
    return a, b


class Recorder:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, event: TraceEvent, *, peer: int, now: float) -> None:
        self.records.append(Record(now, peer, event))


def records(path: Path) -> list[dict[str, Any]]:
    """Return the records as qvis splits a file: at each 0x1E; what is left of white space is JSON."""
    texts = path.read_text().split("\x1e")
    return [json.loads(text) for text in texts if text.strip()]
