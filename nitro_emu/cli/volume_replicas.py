"""`nitro-volume create`, `scrub` and `replace`: a volume's replicas are made, mended, and moved to other servers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from netns.base.addresses import host_port_text
from netns.base.options import HostPort, Size, json_option
from netns.base.output import print_json
from netns.base.tables import print_result, print_table, table
from nitro_emu.cli.volume_keys import public_key
from nitro_emu.cli.volume_options import ServerOption, catalog_option, name_argument
from nitro_emu.ebs import remote
from nitro_emu.ebs.catalog import Catalog, ServerAddress, Volume, new_id, place, position_of
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.remote import DEFAULT_PORT, ReplicaReport
from nitro_emu.ebs.replicas import InUseError, ReplicaStatus
from nitro_emu.ebs.server.service import MAX_VOLUME_BYTES
from nitro_emu.ebs.volume_key import make
from srd.cli.security import SecurityOptions, security_options
from srd.secure.config import SecurityConfig


@click.command()
@name_argument
@click.option("--size", "size_bytes", type=Size(least=BLOCK_BYTES, most=MAX_VOLUME_BYTES), required=True)
@click.option(
    "--server", "servers", type=ServerOption(), multiple=True, required=True,
    help="A volume server, and what fails with it, such as its rack; several times.",
)  # fmt: skip
@click.option("--replicas", type=click.IntRange(1, 7), default=3, show_default=True, help="In as many domains.")
@click.option(
    "--card-file", "card", type=click.Path(path_type=Path), required=True,
    help="Settings of the card that the volume is encrypted for, and attached by.",
)  # fmt: skip
@catalog_option
@security_options
@json_option
def create(
    *,
    name: str,
    size_bytes: int,
    servers: tuple[ServerAddress, ...],
    replicas: int,
    card: Path,
    catalog: Path,
    as_json: bool,
    **security: Any,
) -> None:
    """Create the volume NAME: choose its servers, no two in one domain, and make its key, which only the card can use.

    A write returns when a majority of the replicas has it on the disk.
    """
    if size_bytes % BLOCK_BYTES:
        raise click.UsageError(f"--size {size_bytes}: is no multiple of {BLOCK_BYTES} bytes; change it")
    chosen = SecurityOptions(**security).security()
    with Catalog(catalog) as known:
        if any(volume.name == name for volume in known.volumes()):
            raise VolumeError(f"there is a volume {name} already; give another name")
        places = place(servers, replicas=replicas, volumes=known.volumes())
        _, wrapped_key = make(card=public_key(card), volume=name)
        volume = Volume(name, new_id(), size_bytes, wrapped_key, places)
        asyncio.run(remote.create(volume, security=chosen))
        known.add(volume)
    replicas_at = [{"server": host_port_text(each.host, each.port), "domain": each.domain} for each in places]
    at = ", ".join(f"{each['server']} ({each['domain']})" for each in replicas_at)
    print_result(
        {"volume": name, "size_bytes": size_bytes, "replicas": replicas_at},
        as_json=as_json,
        text=f"nitro-volume: {name}: {size_bytes} bytes, {len(places)} replicas at {at}",
    )


@click.command()
@name_argument
@catalog_option
@security_options
@json_option
def scrub(*, name: str, catalog: Path, as_json: bool, **security: Any) -> int:
    """Have the servers of the volume NAME check all blocks against their checksums, and repair what is corrupt.

    A block that is corrupt is never read; it is repaired from another replica: by the attachment, if there is one.
    Status 1 if a server has failed, or a block is left that no other replica has.
    """
    chosen = SecurityOptions(**security).security()
    with Catalog(catalog) as known:
        volume = known.volume(name)
    rows = asyncio.run(_scrub(volume, security=chosen))
    if as_json:
        print_json({"volume": name, "replicas": rows})
    else:
        made = table("server", "corrupt blocks", "repaired", "failure", text=("repaired", "failure"))
        for row in rows:
            made.add_row(row["server"], str(row["corrupt_blocks"]), _said(row), row["failure"] or "")
        print_table(made)
    return int(any(row["failure"] or row["repaired"] is False for row in rows))


def _said(row: dict[str, Any]) -> str:
    if not row["corrupt_blocks"]:
        return ""
    return {True: "yes", False: "no: nobody has them", None: "by its attachment"}[row["repaired"]]


async def _scrub(volume: Volume, *, security: SecurityConfig) -> list[dict[str, Any]]:
    reports = await remote.scrub(volume, security=security)
    corrupt = [number for number, report in enumerate(reports) if report.corrupt_blocks]
    found: list[ReplicaStatus] | None = None
    if corrupt:
        with suppress(InUseError):  # whoever has it repairs it: its servers tell it to look again
            found = await remote.repair(volume, numbers=corrupt, security=security)
    return [_row(report, found[number] if found else None) for number, report in enumerate(reports)]


def _row(report: ReplicaReport, now: ReplicaStatus | None) -> dict[str, Any]:
    is_repaired = None
    if report.corrupt_blocks and now is not None:
        is_repaired = now.is_member and not now.missing_blocks
    return {
        "server": host_port_text(*report.server),
        "corrupt_blocks": report.corrupt_blocks,
        "repaired": is_repaired,
        "failure": report.failure,
    }


@click.command("replace")
@name_argument
@click.argument("old", metavar="HOST[:PORT]", type=HostPort(default_port=DEFAULT_PORT))
@click.option(
    "--server",
    type=ServerOption(),
    required=True,
    help="The server in its place, and what fails with it, such as its rack.",
)
@catalog_option
@security_options
@json_option
def replace_command(
    *, name: str, old: tuple[str, int], server: ServerAddress, catalog: Path, as_json: bool, **security: Any
) -> None:
    """Replace a server of the volume NAME, by one in a domain of its own; return when it has all data.

    The one at HOST[:PORT] may be lost, or still run: from then on it has no say, and neither has a host that attaches
    the volume by an older catalog. The volume is detached meanwhile; a majority of the other servers must be there.
    """
    chosen = SecurityOptions(**security).security()
    with Catalog(catalog) as known:
        volume = known.volume(name)
        position = position_of(old, volume=volume, server=server)
        new = (server.host, server.port)
        asyncio.run(remote.create_blank(volume, server=new, replaces=old, security=chosen))
        volume = known.replace(volume, position=position, server=server)
    try:
        status = asyncio.run(remote.repair(volume, numbers=[position], security=chosen))[position]
    except VolumeError as error:
        raise VolumeError(f"{error} (the catalog has the new server: the next attachment fills it)") from error
    if not status.is_member or status.missing_blocks:
        raise VolumeError(
            f"{name}: {host_port_text(*new)} has not been filled: {status.missing_blocks} blocks are left; the next "
            "attachment goes on with it"
        )
    replaced, by = host_port_text(*old), host_port_text(*new)
    print_result(
        {"volume": name, "replaced": replaced, "server": by, "domain": server.domain},
        as_json=as_json,
        text=f"nitro-volume: {name}: {by} ({server.domain}) has replaced {replaced}",
    )
