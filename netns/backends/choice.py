"""Choose the backend that this kernel supports, by trying, and give the reason."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

from netns.backends.kernel.capabilities import accepts_seeds, missing, missing_netem
from netns.backends.kernel.features import missing_ipv6, missing_link, missing_resilient
from netns.errors import BackendError
from netns.lab.plan import Backend
from netns.netem.shape import Shape
from netns.netem.tc_format import netem_arguments
from netns.topology.model import Topology

TUN_DEVICE: Final = Path("/dev/net/tun")

Wanted = Literal["auto", "kernel", "relay"]


def require_root(purpose: str) -> None:
    """Raise BackendError, one line, unless the caller is root."""
    if os.geteuid() != 0:
        remedy = "run it with sudo, or as srd-lab rootless -- COMMAND"
        raise BackendError(f"{purpose} needs root, because it works in network namespaces; {remedy}")


def choose_backend(topology: Topology, wanted: Wanted) -> tuple[Backend, str]:
    """Return the backend for `topology` and the reason; BackendError with the remedy if none is possible."""
    _require_features(topology)
    shaped = any(link.shaped for link in topology.links)
    if not shaped:
        return ("relay" if wanted == "relay" else "kernel"), "no link is shaped"
    missing = missing_netem() if wanted != "relay" else None
    lacking = _lacking(topology) if wanted != "relay" and missing is None else None
    if wanted == "kernel":
        if missing is not None:
            raise BackendError(f"this kernel has no netem ({missing}); use --backend relay")
        if lacking is not None:
            raise BackendError(f"{lacking}; use --backend relay")
        return "kernel", f"requested{_about_seeds()}"
    if wanted == "auto" and missing is None and lacking is None:
        return "kernel", f"this kernel has netem{_about_seeds()}"
    if not TUN_DEVICE.exists():
        raise BackendError(f"{TUN_DEVICE} is missing, which the relay backend needs; load the module tun")
    if not os.access(TUN_DEVICE, os.R_OK | os.W_OK):
        raise BackendError(
            f"{TUN_DEVICE} is not yours to open, which the relay backend needs; be root, or use srd-lab uml"
        )
    if wanted == "relay":
        return "relay", "requested"
    return "relay", lacking or f"this kernel has no netem: {missing}"


def _require_features(topology: Topology) -> None:
    """Raise BackendError if the kernel lacks what `topology` needs in any backend."""
    if (reason := missing_link("veth")) is not None:
        raise BackendError(f"this kernel has no veth ({reason}), of which links are made; load it: modprobe veth")
    if topology.ipv6 and (reason := missing_ipv6()) is not None:
        raise BackendError(f"ipv6: this kernel has none ({reason}); boot without ipv6.disable=1, or leave ipv6 out")
    if topology.ecmp == "resilient" and (reason := missing_resilient()) is not None:
        raise BackendError(
            f"ecmp: resilient: this kernel has no such nexthop groups ({reason}); use hash-threshold or Linux 5.13"
        )


def _lacking(topology: Topology) -> str | None:
    """Return what the kernel's netem cannot do of the topology, and on which link; None if it can do all."""
    requested: dict[Shape, str] = {}
    for link in topology.links:
        for shape in (link.shape_ab, link.shape_ba):
            if shape is not None:
                requested.setdefault(shape, link.name)
    for shape, name in requested.items():
        if (reason := missing(shape)) is not None:
            return f"link {name}: this kernel cannot do {' '.join(netem_arguments(shape))}: {reason}"
    return None


def _about_seeds() -> str:
    return "" if accepts_seeds() else "; its draws are its own: it takes no seeds before Linux 6.6"
