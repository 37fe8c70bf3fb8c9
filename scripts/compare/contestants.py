"""The contestants: for each, its names, its commands, and a check whether this machine can run it.

The commands run inside the two namespaces; all of them print the events of scripts/harness/events.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from srd.perf.tcp_socket import BBR, CUBIC, why_unavailable

# SRD's source ports, srd's own default. The hash maps ports to spines: 8 ports miss one of four spines with probability
# 38 % (4 x (3/4)^8 - 6 x (2/4)^8 + ...), 16 with 4 %, 32 with 0.04 %.
PATH_COUNT: Final = 32
SRD: Final = "srd"
_SRD: Final = str(Path(sys.prefix) / "bin" / "srd")
_TCP_TOOL: Final = (sys.executable, "-m", "scripts.compare.tcp_file")


@dataclass(frozen=True, slots=True)
class Ends:
    """Source and destination of a transfer."""

    sender_address: str
    """The sender's address for a protocol that pins its first flow (MPTCP)."""

    receiver_address: str
    """The receiver's main address."""

    source: Path
    """The file to send."""

    output: Path
    """The directory to receive it in."""


def _always() -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class Contestant:
    """One contestant."""

    key: str
    """Its name in report.json and on the command line."""

    label: str
    """Its display name."""

    colour: str
    """From Okabe and Ito's palette, which colour-blind readers can distinguish."""

    receive: Callable[[Ends], list[str]]
    """Return the receiver's command."""

    send: Callable[[Ends, int], list[str]]
    """Return the sender's command, given the receiver's port."""

    subflow_for_each_spine: bool = False
    """Whether the connection shall have one subflow over each spine (MPTCP)."""

    why_unavailable: Callable[[], str | None] = _always
    """Return one line with what is missing, or None."""


def _srd_receive(ends: Ends) -> list[str]:
    listen = f"{ends.receiver_address}:0"
    return [_SRD, "recv", "--listen", listen, "--output", str(ends.output), "--once", "--json", "--overwrite"]


def _srd_send(ends: Ends, port: int) -> list[str]:
    target = f"{ends.receiver_address}:{port}"
    same_hash = ["--hash", "sha256"]  # as TCP's tool has
    options = ["--paths", str(PATH_COUNT), *same_hash, "--json", "--retry-for", "0"]
    return [_SRD, "send", str(ends.source), target, *options]


def _srd_unavailable() -> str | None:
    return None if Path(_SRD).exists() else f"srd: {_SRD} is missing; run: make setup"


def _tcp(key: str, label: str, colour: str, *, algorithm: str, mptcp: bool = False) -> Contestant:
    options = ["--algorithm", algorithm] + (["--mptcp"] if mptcp else [])

    def receive(ends: Ends) -> list[str]:
        listen = f"{ends.receiver_address}:0"
        return [*_TCP_TOOL, "receive", "--listen", listen, "--output", str(ends.output), *options]

    def send(ends: Ends, port: int) -> list[str]:
        bind = ["--bind", ends.sender_address] if mptcp else []
        return [*_TCP_TOOL, "send", str(ends.source), f"{ends.receiver_address}:{port}", *options, *bind]

    return Contestant(
        key=key,
        label=label,
        colour=colour,
        receive=receive,
        send=send,
        subflow_for_each_spine=mptcp,
        why_unavailable=lambda: why_unavailable(algorithm=algorithm, mptcp=mptcp),
    )


CONTESTANTS: Final = (
    Contestant(
        key=SRD,
        label="SRD",
        colour="#0072B2",
        receive=_srd_receive,
        send=_srd_send,
        why_unavailable=_srd_unavailable,
    ),
    _tcp("tcp-cubic", "TCP cubic", "#E69F00", algorithm=CUBIC),
    _tcp("tcp-bbr", "TCP bbr", "#009E73", algorithm=BBR),
    _tcp("mptcp", "MPTCP", "#CC79A7", algorithm=CUBIC, mptcp=True),
)
BY_KEY: Final = {contestant.key: contestant for contestant in CONTESTANTS}
