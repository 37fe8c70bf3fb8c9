"""Two cards as processes in the namespaces of a veth pair, with their settings and run directories.

Card `a` is at the sending end, card `b` at the receiving one. Their sockets lie in a temporary directory: Unix sockets
belong to the file system, so that an application may run in any namespace. All is removed when the block ends, also
when a signal unwinds it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nitro_emu.card.control import ask
from nitro_emu.errors import NitroError
from nitro_emu.peers.vf_config import DEFAULT_PORT
from scripts.harness.client_server import Event, python, run_both
from scripts.harness.drops import require_none
from scripts.harness.efa_perf import CardDevice, commands
from scripts.harness.errors import BenchError
from scripts.harness.perf import START_S
from scripts.harness.process import Process, ProcessGroup
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts
from srd.perf.sweep.plan import Sweep

START_BOUND_S: Final = 60.0
"""Timeout to start an interpreter and open all virtual functions, on a busy machine."""
PSK: Final = bytes(range(32)).hex()
"""The key of encrypted cards: it encrypts like every mode, and needs no files of keys."""
FEW_VFS: Final = 8
"""So many virtual functions have receive regions of the default size, more have smaller ones."""
MANY_VFS_MEMORY: Final = "8M"


@dataclass(frozen=True, slots=True)
class CardOptions:
    vfs: int = 1
    encrypted: bool = False
    busy_poll: bool = False


@dataclass(frozen=True, slots=True)
class BenchCard:
    process: Process
    run_dir: Path

    @property
    def cpu_s(self) -> float:
        """CPU time of its process so far. Raises BenchError if it has ended."""
        return self.process.cpu_s

    def device(self, number: int) -> CardDevice:
        return CardDevice(self.run_dir, device(number))

    def counters(self, *names: str) -> dict[str, int]:
        """Return the port counters of some virtual functions together, by default of all.

        Raises BenchError if it does not answer.
        """
        try:
            vfs = ask(self.run_dir, "stats")["vfs"]
        except NitroError as error:
            raise BenchError(f"{self.process.name}: {error}") from error
        found = Counter[str]()
        for name in names or vfs:
            found.update(vfs[name]["port"])
        return found


@dataclass(frozen=True, slots=True)
class TwoCards:
    pair: TwoHosts
    a: BenchCard
    b: BenchCard

    @property
    def cpu_s(self) -> float:
        return self.a.cpu_s + self.b.cpu_s

    def require_no_drops(self) -> None:
        """Raise BenchError if a datagram was dropped at a card's sockets: such a run measures the host's buffers."""
        require_none(sum(card.counters()["rx_drops"] for card in (self.a, self.b)))


def measured(cards: TwoCards, sweep: Sweep, *, events: bool = False) -> Event:
    """Run a sweep between the cards' first devices; return its row (harness/efa_perf.py).

    Raises BenchError, also for a datagram that was dropped at a card's sockets.
    """
    server, client = commands(cards.b.device(0), cards.a.device(0), sweep, events=events, naps=False)
    _, row = run_both(cards.pair, server=server, client=client, bound_s=START_S + 10 * sweep.seconds)
    cards.require_no_drops()
    return row


def device(number: int) -> str:
    return f"efa_{number}"


def settings(options: CardOptions, *, name: str, address: str, directory: Path) -> str:
    """Return the settings of one card as YAML; its run directory and the key's file are in `directory`.

    Only errors are logged, and none may be: `two_cards` demands that stderr is empty.
    """
    security = f"{{mode: psk, psk_file: {directory / 'psk'}}}" if options.encrypted else "{mode: plain}"
    memory = "" if options.vfs <= FEW_VFS else f", memory_bytes: {MANY_VFS_MEMORY}"
    more = f"address: {address}, security: {security}{memory}"
    vfs = "".join(
        f"  - {{name: {device(number)}, port: {DEFAULT_PORT + number}, {more}}}\n" for number in range(options.vfs)
    )
    busy_poll = str(options.busy_poll).lower()
    return f"name: {name}\nrun_dir: {directory / name}\nlog_level: error\nbusy_poll: {busy_poll}\nvfs:\n{vfs}"


@contextmanager
def two_cards(pair: TwoHosts, options: CardOptions) -> Iterator[TwoCards]:
    """Run both cards until the end of the block.

    Raises BenchError if one does not start, has logged an error, or does not end in an orderly way.
    """
    with TemporaryDirectory(prefix="srd-bench-card-") as name:
        directory = Path(name)
        (directory / "psk").touch(mode=0o600)
        (directory / "psk").write_text(PSK + "\n")
        with ProcessGroup() as pipes:
            a = _start(pipes, pair, SENDER, options=options, address=pair.sender, directory=directory)
            b = _start(pipes, pair, RECEIVER, options=options, address=pair.receiver, directory=directory)
            for card in (a, b):
                pipes.event(card.process, "ready", bound_s=START_BOUND_S)
            yield TwoCards(pair, a, b)
        for card in (a, b):
            _require_orderly_end(card.process)


def _start(
    pipes: ProcessGroup, pair: TwoHosts, node: str, *, options: CardOptions, address: str, directory: Path
) -> BenchCard:
    name = {SENDER: "card-a", RECEIVER: "card-b"}[node]
    config = directory / f"{name}.yaml"
    config.write_text(settings(options, name=name, address=address, directory=directory))
    command = pair.command(node, python("nitro_emu.cli", "run", str(config), "--json-lines"))
    return BenchCard(pipes.start(name, command), directory / name)


def _require_orderly_end(process: Process) -> None:
    if process.status != 0 or process.last_error:
        raise process.failure
