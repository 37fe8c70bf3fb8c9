"""Which fabric this kernel can build, found out by trying, and said with its reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from netns.errors import FabricError
from netns.fabric.netlink import run_tool, tool
from netns.plan import Fabric
from netns.topology import Topology

TUN_DEVICE: Final = Path("/dev/net/tun")

Wanted = Literal["auto", "kernel", "relay"]


def require_root(purpose: str) -> None:
    """FabricError of one line unless the caller is root."""
    if os.geteuid() != 0:
        raise FabricError(f"{purpose} needs root, because it works in network namespaces; run it with sudo")


def missing_netem() -> str | None:
    """Why the kernel has no netem; None if it has. Tried on the loopback of a nameless namespace that ends at once."""
    try:
        run_tool("unshare", "--net", tool("tc"), "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    except FabricError as error:
        return str(error).rpartition(": ")[2].rstrip(".")
    return None


def choose_fabric(topology: Topology, wanted: Wanted) -> tuple[Fabric, str]:
    """The fabric for `topology` and the reason for it; FabricError, with the remedy, if it cannot be had."""
    shaped = any(link.shaped for link in topology.links)
    if not shaped:
        return ("relay" if wanted == "relay" else "kernel"), "no link is shaped"
    missing = missing_netem() if wanted != "relay" else None
    if wanted == "kernel":
        if missing is not None:
            raise FabricError(f"this kernel has no netem ({missing}); use --fabric relay")
        return "kernel", "asked for"
    if wanted == "auto" and missing is None:
        return "kernel", "this kernel has netem"
    if not TUN_DEVICE.exists():
        raise FabricError(f"{TUN_DEVICE} is missing, which the relay fabric needs; load the module tun")
    return "relay", "asked for" if wanted == "relay" else f"this kernel has no netem: {missing}"
