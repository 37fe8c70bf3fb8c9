"""Two cards with two tenants on the reference fabric with loss: what they may do, what they may not, and the proofs.

The cards run in the namespaces of the hosts h1 and h2, each with a security chip, and keep their sockets in a directory
of their own. `nitro-vpc` maps two VPCs with the same private addresses. The tenants are processes outside: they need no
network, only the device, as `efa-bw`. `red` sends messages, `blue` writes to remote memory, at the same time. All that
passes a link meanwhile is captured, and searched for their data. The last part is what must not be: see checks.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from netns.lab.lab import Lab
from netns.topology.model import Topology, reference
from nitro_emu.card.control import ask
from scripts.card_demo import tables
from scripts.card_demo.checks import DemoCheck, attestation, denials, tampering
from scripts.card_demo.pattern import WORD_BYTES, data
from scripts.card_demo.stage import CHIPS, INTERFACES, DemoInterface, DemoStage
from scripts.card_demo.wire import WireCapture, captured
from scripts.harness.client_server import python
from scripts.harness.efa_perf import commands
from scripts.harness.errors import BenchError
from scripts.harness.process import ProcessGroup
from scripts.harness.program import program
from scripts.harness.two_hosts import LOOPBACK
from srd.compare.fabric import conditioned
from srd.compare.grid import Condition
from srd.perf.figures import MB
from srd.perf.sweep.plan import Operation, Sweep

LAB_NAME: Final = "card-demo"
LINK: Final = "h1-leaf1"
"""The link that is captured: all that h1 sends and gets."""


@dataclass(frozen=True, slots=True)
class TenantWork:
    tenant: str
    operation: Operation
    size_bytes: int
    depth: int
    usual: int
    text: str

    @property
    def ends(self) -> tuple[DemoInterface, DemoInterface]:
        return INTERFACES[f"{self.tenant}-1"], INTERFACES[f"{self.tenant}-2"]

    def sweep(self, share: float) -> Sweep:
        count = max(round(self.usual * share), 1)
        return Sweep(self.operation, sizes=(self.size_bytes,), iterations=count, verify=True, tx_depth=self.depth)


WORKS: Final = (
    TenantWork("red", Operation.RATE, 1 << 10, 256, 20_000, "SENDs of 1 KiB"),
    TenantWork("blue", Operation.WRITE, 1 << 20, 8, 64, "RDMA WRITEs of 1 MiB"),
)


@program("demo-card")
@click.option("--loss", "loss_percent", default=1.0, show_default=True, help="Loss on every spine, in per cent.")
@click.option("--share", default=1.0, show_default=True, help="Share of the usual number of messages and writes.")
def command(*, loss_percent: float, share: float) -> None:
    """Run two emulated EFA cards over a lossy four-path fabric, with two tenants who have the same addresses."""
    with (
        Lab.up(_fabric(loss_percent)) as lab,
        TemporaryDirectory(prefix="card-demo-", ignore_cleanup_errors=True) as directory,
        ProcessGroup() as processes,
    ):
        click.echo(f"fabric: {lab.backend}, {len(lab.topology.spines)} paths, {loss_percent:g} % loss on each spine")
        stage = DemoStage(lab, directory=Path(directory), processes=processes)
        stage.build()
        as_expected = _show(stage, share=share)
    if not as_expected:
        raise BenchError("not everything came out as expected")


def _fabric(loss_percent: float) -> Topology:
    fabric = reference()
    return conditioned(fabric, Condition({"loss": f"{loss_percent:g}%"}), name=LAB_NAME, seed=fabric.seed)


def _show(stage: DemoStage, *, share: float) -> bool:
    """Do everything, print what came out; return whether it is what was expected."""
    with captured(stage.lab, LINK, path=stage.directory / "cards.pcapng") as encrypted:
        results = _run_tenants(stage, share=share)
    tables.print_transfers(results)
    tables.print_counters({card: ask(stage.run_dir(card), "stats") for card in CHIPS})
    first, second = CHIPS
    transferred = sum(result["bytes"] for result in results.values())
    parts: tuple[tuple[str, Callable[[], list[DemoCheck]]], ...] = (
        ("on the wire: 8 bytes of the tenants' data, at any byte", partial(_wire, stage, encrypted, sent=transferred)),
        ("denied", partial(denials, stage)),
        ("attested", partial(attestation, stage, first, other=second)),
        ("tampered with, and started again", partial(tampering, stage, first)),
    )
    as_expected = True
    for title, tried in parts:
        checks = tried()
        tables.print_checks(title, checks)
        as_expected = as_expected and all(check.as_expected for check in checks)
    return as_expected


# -- transfers ----------------------------------------------------------------------------------------------------


def _run_tenants(stage: DemoStage, *, share: float) -> dict[str, dict[str, Any]]:
    """Run all tenants at the same time, who compare every byte; return what came of each."""
    senders = {}
    for work in WORKS:
        sender, receiver = work.ends
        server, client = commands(stage.device(receiver), stage.device(sender), work.sweep(share))
        port = stage.wait_for(stage.processes.start(receiver.name, server), "listening")["port"]
        senders[work] = stage.processes.start(sender.name, client(LOOPBACK, port))
    found = {}
    for work, process in senders.items():
        row = stage.wait_for(process, "measured")
        found[work.tenant] = {
            "bytes": row["iterations"] * row["size_bytes"],
            "mb_per_s": row["mean_mb_per_s"] * MB / 1e6,
            "cpu_s": row["cpu_s"],
            "addresses": " to ".join(end.address for end in work.ends),
            "work": f"{row['iterations']:,} {work.text}",
        }
    return found


# -- the wire -----------------------------------------------------------------------------------------------------


def _wire(stage: DemoStage, encrypted: WireCapture, *, sent: int) -> list[DemoCheck]:
    """Search what was captured for the tenants' data; and, as this could fail to find any, a transfer in plain text."""
    with captured(stage.lab, LINK, path=stage.directory / "plain.pcapng") as plain:
        _send_plainly(stage)
    hidden, readable = encrypted.matches(), plain.matches()
    is_whole = encrypted.size_bytes >= sent and not encrypted.dropped
    return [
        DemoCheck("the tenants' transfers", _counted(encrypted, hidden), as_expected=is_whole and hidden == 0),
        DemoCheck(
            "a file of such data by srd send --plain",
            _counted(plain, readable),
            as_expected=readable >= len(data()) / WORD_BYTES * 0.9,  # where a packet ends it cannot be seen
        ),
    ]


def _counted(capture: WireCapture, matches: int) -> str:
    lost = f", {capture.dropped:,} not captured" if capture.dropped else ""
    return f"{capture.packets:,} packets, {capture.size_bytes:,} bytes, {matches:,} matches{lost}"


def _send_plainly(stage: DemoStage) -> None:
    source, target = stage.directory / "plain", stage.directory / "plain.received"
    target.mkdir()
    source.write_bytes(data())
    address, both = stage.lab.address("h2"), ("--plain", "--json-lines")
    receive = python("srd", "recv", "-B", address, "-p", "0", "--output", str(target), "--once", *both)
    receiver = stage.processes.start("srd recv", stage.lab.command("h2", receive))
    port = stage.wait_for(receiver, "listening")["port"]
    send = python("srd", "send", str(source), f"{address}:{port}", *both)
    sender = stage.processes.start("srd send", stage.lab.command("h1", send))
    stage.wait_for(sender, "sent")
