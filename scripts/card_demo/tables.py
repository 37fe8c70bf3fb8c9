"""How the demonstration prints what came out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from scripts.card_demo.checks import DemoCheck

_NUMBERS: Final = {"MB/s", "CPU s", "MB sent", "MB received", "packets resent", "denied"}
_WIDTH: Final = 130
"""Where the output is no terminal."""


def print_transfers(results: Mapping[str, Mapping[str, Any]]) -> None:
    made = _table("transfers within a VPC", "VPC", "from, to", "what", "MB/s", "CPU s", "every byte compared")
    for name, result in results.items():
        figures = (f"{result['mb_per_s']:.1f}", f"{result['cpu_s']:.2f}", "yes")
        made.add_row(name, result["addresses"], result["work"], *figures)
    _print(made)


def print_counters(stats: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the counters of the cards' devices that have sent or received anything."""
    made = _table("what the cards counted", "card", "device", "MB sent", "MB received", "packets resent")
    for card, found in stats.items():
        for device, vf in found["vfs"].items():
            port = vf["port"]
            if port["tx_bytes"] or port["rx_bytes"]:
                megabytes = (f"{port[name] / 1e6:.1f}" for name in ("tx_bytes", "rx_bytes"))
                made.add_row(card, device, *megabytes, f"{port['retrans_pkts']:,}")
    _print(made)


def print_checks(title: str, checks: Sequence[DemoCheck]) -> None:
    made = _table(title, "what", "outcome", "as expected")
    for check in checks:
        made.add_row(check.what, check.outcome, _yes_or_no(check.as_expected))
    _print(made)


def _yes_or_no(is_so: object) -> str:
    return "yes" if is_so else "NO"


def _table(title: str, *columns: str) -> Table:
    """Return a table of which nothing is cut at 80 columns: texts go on in a next line, numbers keep theirs."""
    table = Table(title=title, title_justify="left", box=SIMPLE)
    for column in columns:
        is_number = column in _NUMBERS
        table.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


def _print(table: Table) -> None:
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(highlight=False, width=_WIDTH)
    console.print(table)
