"""The congestion control of TCP sockets that are not ours, such as gloo's: that of the route they take.

Not the namespace's default, which may only be one that unprivileged users may have, too: on some kernels not cubic.
"""

from __future__ import annotations

from collections.abc import Iterable

from netns.lab.lab import Lab
from netns.programs import output_of


def set_algorithm(lab: Lab, hosts: Iterable[str], *, name: str) -> None:
    """Have new TCP connections of these hosts through the fabric use an algorithm. Raises LabError if they cannot."""
    for host in hosts:
        route = _ip(lab, host, "show", "default").split(" congctl ")[0]
        _ip(lab, host, "replace", *route.split(), "congctl", name)


def _ip(lab: Lab, host: str, *arguments: str) -> str:
    command = lab.command(host, ["ip", "route", *arguments])
    return output_of(command, called=f"{host}: ip route {' '.join(arguments)}").strip()
