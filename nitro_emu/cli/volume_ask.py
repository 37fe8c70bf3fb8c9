"""What `nitro-volume` asks the processes of attached volumes: `ls`, `status`, `detach`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import click

from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.tables import print_table, table
from nitro_emu.cli.tables import print_fields
from nitro_emu.ebs.attachment import DEFAULT_RUN_DIR, ask, attached
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.statistics import BOUNDS_US

RUN_DIR_VARIABLE: Final = "NITRO_VOLUME_DIR"
BAR_COLUMNS: Final = 40

run_dir_option: Final = click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    envvar=RUN_DIR_VARIABLE,
    default=DEFAULT_RUN_DIR,
    show_default=True,
    show_envvar=True,
    help="Directory of the sockets of attached volumes.",
)
name_argument: Final = click.argument("name")


@click.command()
@name_argument
@run_dir_option
@click.option("--force", is_flag=True, help="Also while NBD clients use it; they see their connections end.")
def detach(*, name: str, run_dir: Path, force: bool) -> None:
    """Detach the volume NAME; return when all that was written is flushed."""
    ask(run_dir, name, "detach", force=force)


@click.command("ls")
@run_dir_option
@json_option
def list_command(*, run_dir: Path, as_json: bool) -> None:
    """List the volumes that are attached to this host."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in attached(run_dir):
        try:
            found[name] = ask(run_dir, name, "status")
        except VolumeError as error:
            click.echo(f"nitro-volume: {error}", err=True)
    if as_json:
        print_json({"volumes": [_row(each) for each in found.values()]})
        return
    if not found:
        click.echo(f"no volume is attached in {run_dir}")
        return
    made = table("volume", "bytes", "clients", "address", text=("address",))
    for each in found.values():
        made.add_row(each["name"], str(each["size_bytes"]), str(each["clients"]), " ".join(each["addresses"]))
    print_table(made)


def _row(status: Mapping[str, Any]) -> dict[str, Any]:
    return {key: status[key] for key in ("name", "size_bytes", "clients", "addresses", "pid")}


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
