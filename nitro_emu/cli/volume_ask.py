"""What `nitro-volume` asks the processes of attached volumes: `ls`, `status`, `detach`."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import click

from netns.base.addresses import host_port_text
from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.tables import cell, print_fields, print_table, table
from nitro_emu.cli.volume_options import catalog_option, name_argument, run_dir_option
from nitro_emu.ebs.attachment import ask, attached
from nitro_emu.ebs.catalog import Catalog
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.statistics import BOUNDS_US

BAR_COLUMNS: Final = 40


@click.command()
@name_argument
@run_dir_option
@click.option("--force", is_flag=True, help="Also while NBD clients use it; they see their connections end.")
@json_option
def detach(*, name: str, run_dir: Path, force: bool, as_json: bool) -> None:
    """Detach the volume NAME; return when all that was written is flushed."""
    ask(run_dir, name, "detach", force=force)
    if as_json:
        print_json({"volume": name})


@click.command("ls")
@run_dir_option
@catalog_option
@json_option
def list_command(*, run_dir: Path, catalog: Path, as_json: bool) -> None:
    """List the volumes in the catalog, and those that are attached to this host."""
    rows: dict[str, dict[str, Any]] = {}
    if catalog.exists():
        with Catalog(catalog) as known:
            for volume in known.volumes():
                at = [host_port_text(*address) for address in volume.addresses]
                rows[volume.name] = {"size_bytes": volume.size_bytes, "servers": at, "addresses": [], "clients": 0}
    for name in attached(run_dir):
        try:
            found = ask(run_dir, name, "status")
        except VolumeError as error:
            click.echo(f"nitro-volume: {error}", err=True)
            continue
        row = rows.setdefault(name, {"servers": []})
        row.update({key: found[key] for key in ("size_bytes", "addresses", "clients")})
    if as_json:
        print_json({"volumes": [{"name": name, **row} for name, row in rows.items()]})
    elif rows:
        made = table("volume", "bytes", "servers", "clients", "attached at", text=("servers", "attached at"))
        for name, row in rows.items():
            made.add_row(name, *(cell(row[key]) for key in ("size_bytes", "servers", "clients", "addresses")))
        print_table(made)
    else:
        click.echo(f"no volume is in {catalog}, or attached in {run_dir}")


@click.command()
@name_argument
@run_dir_option
@json_option
def status(*, name: str, run_dir: Path, as_json: bool) -> None:
    """Show the attached volume NAME: requests, errors, limits, and a histogram of how long requests took."""
    found = ask(run_dir, name, "status")
    if as_json:
        print_json(found)
        return
    requests, device = found.pop("requests"), found.pop("device")
    print_fields({**found, **{f"device_{key}": value for key, value in device.items()}})
    made = table("request", "operations", "bytes", "errors", "mean us", text=())
    for command, done in requests.items():
        if done["operations"] or done["errors"]:
            mean_us = done["latency_sum_us"] / max(done["operations"], 1)
            made.add_row(command, *(str(done[key]) for key in ("operations", "bytes", "errors")), f"{mean_us:.0f}")
    if made.row_count:
        click.echo()
        print_table(made)
    for command in ("read", "write"):
        if requests[command]["operations"]:
            click.echo(f"\nlatency of {command}s")
            click.echo(histogram_text(requests[command]["latency_counts"]))


def histogram_text(counts: list[int]) -> str:
    """Return a line for each bucket between the first and the last that is not empty."""
    total, most = sum(counts), max(counts)
    used = [index for index, count in enumerate(counts) if count]
    shares = [below / total for below in accumulate(counts)]
    lines = []
    for index in range(used[0], used[-1] + 1):
        label = f"<= {BOUNDS_US[index]}" if index < len(BOUNDS_US) else f"> {BOUNDS_US[-1]}"
        bar = "#" * -(-counts[index] * BAR_COLUMNS // most)
        lines.append(f"{label:>11} us {counts[index]:9} {shares[index]:8.3%}  {bar}".rstrip())
    return "\n".join(lines)
