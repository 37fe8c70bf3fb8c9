"""`srd-lab top`: the current rates, drops and queues of every link."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from netns.backends.choice import require_root
from netns.base.options import interval_option, json_lines_option
from netns.base.tables import console, show_screens, table
from netns.cli.commands import LAB_OPTION, lab_named
from netns.lab.lab import Lab, LinkCounters


@click.command()
@LAB_OPTION
@interval_option
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many samples; default: on Ctrl-C.")
@click.option("--busy", is_flag=True, help="Only links with traffic, drops or a queue.")
@json_lines_option
def top(
    name: str | None,
    interval_s: float,
    count: int | None,
    busy: bool,  # noqa: FBT001 - click passes by keyword
    as_json: bool,  # noqa: FBT001 - click passes by keyword
) -> None:
    """Show the rates, drops and queues of every direction of every link of a lab."""
    require_root("srd-lab top")
    lab = lab_named(name)
    with suppress(KeyboardInterrupt):  # the usual way to end it
        _show(lab, _samples(lab, interval_s=interval_s, count=count), lasting=count is None, busy=busy, as_json=as_json)


def _show(lab: Lab, seen: Iterator[list[LinkRates]], *, lasting: bool, busy: bool, as_json: bool) -> None:
    if as_json:
        for found in seen:
            click.echo(json.dumps({"lab": lab.name, "links": [asdict(each) for each in _shown(found, busy=busy)]}))
        return
    screens = (_screen(lab, _shown(found, busy=busy)) for found in seen)
    show_screens(screens, terminal=console(), is_lasting=lasting)


def _samples(lab: Lab, *, interval_s: float, count: int | None) -> Iterator[list[LinkRates]]:
    before, before_at = lab.counters(), time.monotonic()
    while count is None or count > 0:
        time.sleep(interval_s)
        after, after_at = lab.counters(), time.monotonic()
        yield rates(before, after, seconds=after_at - before_at, dead=lab.dead_links())
        before, before_at = after, after_at
        count = None if count is None else count - 1


def _shown(found: list[LinkRates], *, busy: bool) -> list[LinkRates]:
    return [
        each
        for each in found
        if not busy or each.packets_per_second or each.dropped_per_second or each.queued_packets or each.dead
    ]


def _screen(lab: Lab, found: list[LinkRates]) -> Group:
    rows = table("link", "Mbit/s", "packets/s", "drops/s", "drops", "queue", "", text=("",))
    for each in found:
        rows.add_row(
            each.direction,
            f"{each.bits_per_second / 1e6:.1f}",
            f"{each.packets_per_second:.0f}",
            f"{each.dropped_per_second:.0f}",
            str(each.dropped),
            str(each.queued_packets),
            "dead" if each.dead else "",
        )
    return Group(Text(_headline(lab)), rows)


def _headline(lab: Lab) -> str:
    status: dict[str, Any] | None = lab.relay_status()
    if status is None:
        return f"lab {lab.name}, {lab.backend} backend"
    lost = f"; OVERLOADED: it lost {status['tap_drops']} packets itself" if status["tap_drops"] else ""
    return f"lab {lab.name}, relay backend, {status['late_mean_us']:.0f} us late on average{lost}"


@dataclass(frozen=True, slots=True)
class LinkRates:
    """One direction of a link between two samples."""

    link: str
    direction: str
    """FROM>TO."""

    bits_per_second: float
    packets_per_second: float
    dropped_per_second: float
    queued_packets: int
    dropped: int
    """Since the lab came up."""

    dead: bool
    """Whether it has a failure."""


def rates(
    before: Mapping[str, LinkCounters],
    after: Mapping[str, LinkCounters],
    *,
    seconds: float,
    dead: Collection[str],
) -> list[LinkRates]:
    """Return the rates of every direction, in the topology's order. A link is called A-B, its directions `ab`, `ba`."""
    found = []
    for link, directions in after.items():
        a, _, b = link.partition("-")
        for key, now in directions.items():
            then = before[link][key]
            found.append(
                LinkRates(
                    link=link,
                    direction=f"{a}>{b}" if key == "ab" else f"{b}>{a}",
                    bits_per_second=(now["bytes"] - then["bytes"]) * 8 / seconds,
                    packets_per_second=(now["packets"] - then["packets"]) / seconds,
                    dropped_per_second=(now["dropped"] - then["dropped"]) / seconds,
                    queued_packets=now.get("queued", 0),
                    dropped=now["dropped"],
                    dead=link in dead,
                )
            )
    return found
