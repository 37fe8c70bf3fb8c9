"""Jobs of several ranks on a lab, each a module of this project. Rank 0 prints events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from netns.base.output import event_of
from netns.children import Output
from netns.lab.lab import Lab
from netns.launcher import Launcher, OnLine
from scripts.harness.client_server import python
from scripts.harness.process import Event


def ranks(lab: Lab, hosts: Sequence[str], module: str, *arguments: str) -> Launcher:
    """Start a rank at each host; a context manager that ends them."""
    return Launcher.start(lab, hosts=hosts, command=python(module, *arguments))


def heard(on_event: Callable[[Event], object] = lambda _: None) -> OnLine:
    """Return what gives `on_event` the events of rank 0, of all that ranks print."""

    def on_line(rank: int, stream: Output, line: str) -> None:
        if stream == "stdout" and rank == 0 and (event := event_of(line)) is not None:
            on_event(event)

    return on_line
