"""MPTCP's subflows on a lab: one over each spine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Final

from netns.lab.lab import Lab
from netns.programs import tool
from srd.compare.errors import CellError

MPTCP: Final = "mptcp"
_MAX_SUBFLOWS: Final = 8  # of the kernel's path manager (MPTCP_PM_ADDR_MAX)


def allow_subflows(lab: Lab, host: str, *, sends: bool) -> None:
    """Let MPTCP open one subflow over each spine, from the sender's pinned addresses. Raises CellError.

    The sender opens them by itself (endpoint type `subflow`), so no announcement can be lost.
    """
    spines = lab.topology.spines[:_MAX_SUBFLOWS]
    _ip(lab, host, "mptcp", "limits", "set", "subflows", str(max(1, len(spines))))
    for spine in spines[1:] if sends else ():  # the first subflow is bound to the first spine's address
        _ip(lab, host, "mptcp", "endpoint", "add", lab.pinned_addresses(host)[spine], "subflow")


def first_address(lab: Lab, host: str) -> str | None:
    """Return the address that the first subflow is bound to; None in a fabric without spines."""
    spines = lab.topology.spines
    return lab.pinned_addresses(host)[spines[0]] if spines else None


def lacking(lab: Lab, counts: Sequence[int]) -> str | None:
    """Return that connections with so many subflows at the end had too few, or None."""
    wanted = max(1, len(lab.topology.spines[:_MAX_SUBFLOWS]))
    if counts and min(counts) < wanted:
        return f"{min(counts)} of {wanted} subflows of a connection existed at the end"
    return None


def _ip(lab: Lab, host: str, *arguments: str) -> None:
    """Run ip(8) on `host`, as pyroute2 lacks support for the path manager of MPTCP."""
    done = subprocess.run(lab.command(host, [tool("ip"), *arguments]), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise CellError(f"ip {' '.join(arguments)}: {reason}")
