"""How the demonstration prints what came out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.table import Table

from netns.base.tables import print_table, table
from scripts.card_demo.checks import DemoCheck


def print_transfers(results: Mapping[str, Mapping[str, Any]]) -> None:
    texts = ("from, to", "what", "every byte compared")
    made = table("VPC", *texts[:2], "MB/s", "CPU s", texts[2], text=texts)
    for name, result in results.items():
        figures = (f"{result['mb_per_s']:.1f}", f"{result['cpu_s']:.2f}", "yes")
        made.add_row(name, result["addresses"], result["work"], *figures)
    _print("transfers within a VPC", made)


def print_counters(stats: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the counters of the cards' devices that have sent or received anything."""
    made = table("card", "device", "MB sent", "MB received", "packets resent", text=("device",))
    for card, found in stats.items():
        for device, vf in found["vfs"].items():
            port = vf["port"]
            if port["tx_bytes"] or port["rx_bytes"]:
                megabytes = (f"{port[name] / 1e6:.1f}" for name in ("tx_bytes", "rx_bytes"))
                made.add_row(card, device, *megabytes, f"{port['retrans_pkts']:,}")
    _print("what the cards counted", made)


def print_checks(title: str, checks: Sequence[DemoCheck]) -> None:
    made = table("what", "outcome", "as expected")
    for check in checks:
        made.add_row(check.what, check.outcome, "yes" if check.as_expected else "NO")
    _print(title, made)


def _print(title: str, made: Table) -> None:
    click.echo(f"\n{title}")
    print_table(made)
