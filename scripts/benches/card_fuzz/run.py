"""A card with a hostile program at one device and good ones at two others: all processes, and what is measured."""

from __future__ import annotations

import math
import random
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from nitro_emu.card.control import ask
from nitro_emu.errors import NitroError
from nitro_emu.gid import gid_of
from scripts.harness.client_server import python
from scripts.harness.errors import BenchError
from scripts.harness.process import Event, Process, ProcessGroup
from scripts.harness.worker import worker

HOSTILE: Final = "bad"
GOOD: Final = ("good_0", "good_1")
START_BOUND_S: Final = 60.0
SLICE_STEPS: Final = 2000
SLICE_BOUND_S: Final = 600.0
REST_BOUND_S: Final = 60.0
"""How long the card may take to end all that a program has left behind, in-flight requests to nobody included."""
FIGURES: Final = (
    "entries",
    "connections",
    "card_lives",
    "internal_errors",
    "neighbour_messages",
    "neighbour_wrong_bytes",
    "neighbour_failed",
    "neighbour_slowest_s",
    "leftover_objects",
    "leftover_descriptors",
    "rss_growth_mb",
)
_UNREACHABLE: Final = "127.255.255.1"
_COMPLAINTS: Final = ("Traceback", "internal error", "Exception in callback")


def _free_address() -> tuple[str, int]:
    """Return an address of 127/8 with a free port: other cards may run on this machine."""
    draw = random.SystemRandom()
    host = f"127.{draw.randrange(1, 255)}.{draw.randrange(256)}.{draw.randrange(1, 255)}"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((host, 0))
        return host, sock.getsockname()[1]


def start_card(group: ProcessGroup, directory: Path) -> Process:
    """Start a card with the three devices; its sockets are in `directory`/run. Raises BenchError."""
    lines = []
    for name in (HOSTILE, *GOOD):
        host, port = _free_address()
        lines.append(f"  - {{name: {name}, address: {host}, port: {port}, security: {{mode: plain}}}}\n")
    config = directory / "card.yaml"
    config.write_text(f"run_dir: {directory / 'run'}\nlog_level: warning\nvfs:\n{''.join(lines)}")
    card = group.start("card", python("nitro_emu.cli", "run", str(config), "--json-lines"))
    group.event(card, "ready", bound_s=START_BOUND_S)
    return card


def complaints(card: Process) -> int:
    return sum(card.errors.count(each) for each in _COMPLAINTS)


def descriptors(card: Process) -> int:
    """Return how many descriptors the card has open, but for its UDP sockets.

    Engines open sockets for standby paths where a path does not answer, and keep them: they are bounded, and nobody's.
    """
    process = Path(f"/proc/{card.popen.pid}")
    udp = {
        line.split()[9] for kind in ("udp", "udp6") for line in (process / "net" / kind).read_text().splitlines()[1:]
    }
    count = 0
    for each in (process / "fd").iterdir():
        with suppress(FileNotFoundError):  # it has been closed meanwhile
            count += str(each.readlink()).removeprefix("socket:[").removesuffix("]") not in udp
    return count


def stats_of(run_dir: Path, name: str = HOSTILE) -> dict[str, Any]:
    found: dict[str, Any] = ask(run_dir, "stats")["vfs"][name]
    return found


def _leftovers(run_dir: Path) -> int:
    return sum(stats_of(run_dir)["resources"].values())


def gids_of(run_dir: Path) -> list[str]:
    """Return whom the hostile program may write to: itself mostly, the good ones, and nobody."""
    vfs = ask(run_dir, "status")["vfs"]
    own, *others = (bytes.fromhex(vfs[name]["gid"].replace(":", "")) for name in (HOSTILE, *GOOD))
    return [gid.hex() for gid in (own, own, own, own, *others, gid_of(_UNREACHABLE, port=9))]


def _rest(group: ProcessGroup, card: Process, run_dir: Path, *, wanted_descriptors: int) -> tuple[int, int]:
    """Wait until the card has cleaned up; return what is left of objects and descriptors."""
    give_up_at = time.monotonic() + REST_BOUND_S
    while True:
        left = _leftovers(run_dir), descriptors(card) - wanted_descriptors
        if (left[0] <= 0 and left[1] <= 0) or time.monotonic() > give_up_at:
            return left
        group.turn(until=time.monotonic() + 0.05)


def measure(entries: int, *, seed: int) -> dict[str, float]:
    """Let a hostile program write so many entries beside good ones. Raises BenchError if it cannot be measured."""
    with tempfile.TemporaryDirectory(prefix="card-fuzz-") as name, ProcessGroup() as group:
        run_dir, card = Path(name) / "run", start_card(group, Path(name))
        neighbours = worker("scripts.benches.card_fuzz.neighbours", "play", directory=str(run_dir), names=GOOD)
        path, gids = str(run_dir / f"{HOSTILE}.sock"), gids_of(run_dir)
        fuzzer = worker("scripts.benches.card_fuzz.host", "fuzz", path=path, seed=seed, gids=gids)
        good = group.start("neighbours", neighbours)
        group.event(good, "ready", bound_s=START_BOUND_S)
        descriptors_before = descriptors(card)  # `gids_of` has asked it: uvloop keeps a spare one from then on
        try:
            bad = group.start("hostile program", fuzzer)
            took, growth_bytes = _attack(group, card, bad, entries=entries)
            bad.kill()
            group.stop(bad)
            left = _rest(group, card, run_dir, wanted_descriptors=descriptors_before)
            total = group.request(good, "", "total")
        except (NitroError, BenchError):
            group.turn(until=0.0)
            if card.status is None:
                raise
            return {**dict.fromkeys(FIGURES, math.inf), "card_lives": 0, "internal_errors": complaints(card)}
        print(good.errors, end="", file=sys.stderr)  # why a message failed
        return {
            "entries": took["entries"],
            "connections": took["connections"],
            "card_lives": int(card.status is None),
            "internal_errors": complaints(card),
            "neighbour_messages": total["messages"],
            "neighbour_wrong_bytes": total["wrong_bytes"],
            "neighbour_failed": total["failed"],
            "neighbour_slowest_s": total["slowest_s"],
            "leftover_objects": left[0],
            "leftover_descriptors": left[1],
            "rss_growth_mb": growth_bytes / 1e6,
        }


def _attack(group: ProcessGroup, card: Process, bad: Process, *, entries: int) -> tuple[Event, int]:
    """Take steps until so many entries were written; return the last event, and how much the card has grown.

    Its memory is compared from the first tenth on, when all tables and pools have been used once.
    """
    took: Event = {"entries": 0}
    before = 0
    while took["entries"] < entries:
        took = group.request(bad, str(SLICE_STEPS), "took", bound_s=SLICE_BOUND_S)
        if not before and took["entries"] >= entries / 10:
            before = card.anonymous_bytes
    group.request(bad, "leave", "left")
    return took, card.anonymous_bytes - before
