"""`nitro-card status`, `metrics`, `logs` and `update`: what a running card is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from netns.base.metrics import check_forms, metrics_options
from netns.base.options import json_lines_option, json_option
from netns.base.output import print_json
from netns.base.printable import printable
from netns.base.tables import print_fields, print_result, print_table, table, table_of
from nitro_emu.card.control import ControlClient, ask
from nitro_emu.card.control_calls import MAX_WAIT_S
from nitro_emu.cli.options import run_dir_option
from nitro_emu.errors import CardError
from nitro_emu.log_ring import LogRecord, text_of


@click.command()
@run_dir_option
@json_option
def status(*, run_dir: Path, as_json: bool) -> None:
    """Show the card and its virtual functions."""
    found = ask(run_dir, "status")
    if as_json:
        print_json(found)
        return
    vfs, trust = found.pop("vfs", {}), found.pop("trust", {})
    print_fields({**found, **{name: value for name, value in trust.items() if value}})
    click.echo()
    print_table(table_of(vfs, first="vf"))


@click.command()
@run_dir_option
@metrics_options
@click.option("--all", "everything", is_flag=True, help="Show the counters that are 0, too.")
def metrics(*, run_dir: Path, as_json: bool, prometheus: bool, everything: bool) -> None:
    """Show the counters, with the names that EFA's driver gives them, and the resources in use."""
    check_forms(as_json=as_json, prometheus=prometheus)
    found = ask(run_dir, "stats")
    if as_json:
        print_json(found)
    elif prometheus:
        click.echo(_metrics_text(found), nl=False)
    else:
        _print_counters(found["vfs"], everything=everything)
        for kind, count in found.get("alarms", {}).items():
            click.echo(f"alarm {printable(kind)}: {count}")


def _metrics_text(found: dict[str, Any]) -> str:
    from nitro_emu.card.metrics import metrics_text  # noqa: PLC0415 - slow to load, and seldom used

    try:
        return metrics_text(found)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise CardError(f"the card's statistics are of another version ({error}); restart it") from error


def _print_counters(vfs: Mapping[str, Mapping[str, Any]], *, everything: bool) -> None:
    """Print a row for each counter, and a column for each VF."""
    rows: dict[str, dict[str, object]] = {}
    for vf, values in vfs.items():
        groups = [group for group in values.values() if isinstance(group, Mapping)]
        alone = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
        for group in (*groups, alone):
            for name, value in _counters(group):
                rows.setdefault(name, {})[vf] = value
    made = table("counter", *vfs, text=())
    for name, row in rows.items():
        if everything or any(row.values()):
            made.add_row(name, *(str(row.get(vf, "")) for vf in vfs))
    if made.row_count:
        print_table(made)
    else:
        click.echo("all counters are 0; --all shows them")


def _counters(group: Mapping[str, object], *, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield name and value of each counter in a group, but for histograms, which are lists."""
    for name, value in group.items():
        if isinstance(value, Mapping):
            yield from _counters(value, prefix=f"{prefix}{name}_")
        elif not isinstance(value, list):
            yield f"{prefix}{name}", value


@click.command()
@run_dir_option
@click.option("--follow", "-f", is_flag=True, help="Go on with new records, until a signal.")
@json_lines_option
def logs(*, run_dir: Path, follow: bool, as_json: bool) -> None:
    """Show the last records of the card's log."""
    with suppress(KeyboardInterrupt):  # the usual way to end --follow
        _show_logs(run_dir, follow=follow, as_json=as_json)


def _show_logs(run_dir: Path, *, follow: bool, as_json: bool) -> None:
    last, wait_s = 0, 0.0
    with ControlClient(run_dir) as client:
        while True:
            records: list[LogRecord] = client.ask("logs", after=last, wait_s=wait_s)["records"]
            for record in records:
                click.echo(json.dumps(record) if as_json else text_of(record))
                last = record["number"]
            if not follow:
                return
            wait_s = MAX_WAIT_S


@click.command()
@run_dir_option
@json_option
@click.argument("manifest", type=click.Path(path_type=Path))
def update(*, run_dir: Path, as_json: bool, manifest: Path) -> None:
    """Let the card check the software that MANIFEST describes, and go on with it.

    The security chip checks the vendor's signature and measures the files itself. An older version is refused.
    """
    found = ask(run_dir, "update", manifest=str(manifest.absolute()))
    print_result(found, as_json=as_json)
