"""Names of a lab's hosts: `ping h2` works in it.

`ip netns exec` shows a program /etc/netns/NAMESPACE/hosts as /etc/hosts. There each host of a lab has a link to one
file, in the lab's directory. Where /etc/netns cannot be written (a rootless lab) there are addresses only.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from netns.topology.addressing import addressing, versions
from netns.topology.model import Topology

ETC_NETNS: Final = Path("/etc/netns")
FILE_NAME: Final = "hosts"


def hosts_file(topology: Topology) -> str:
    """Return the file: every host with each of its addresses."""
    found = [addressing(topology, version=version) for version in versions(topology)]
    lines = [f"{addresses.main[host]} {host}" for addresses in found for host in topology.hosts]
    return "\n".join(["127.0.0.1 localhost", "::1 localhost", *lines, ""])


def add(namespaces: Iterable[str], *, directory: Path, topology: Topology) -> None:
    """Write the file to the lab's directory, and have these namespaces show it."""
    path = directory / FILE_NAME
    path.write_text(hosts_file(topology), encoding="utf-8")
    for netns in namespaces:
        link = ETC_NETNS / netns / FILE_NAME
        with suppress(OSError):  # the user's own is there; or it cannot be written, and there are no names
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)


def remove(netns: str, *, directory: Path) -> None:
    """Remove what a namespace shows of a lab, and its directory if nothing else is in it."""
    link = ETC_NETNS / netns / FILE_NAME
    with suppress(OSError):
        if link.is_symlink() and link.readlink() == directory / FILE_NAME:
            link.unlink()
            link.parent.rmdir()
