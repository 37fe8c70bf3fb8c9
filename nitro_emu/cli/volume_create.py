"""`nitro-volume create`: a volume is made on its servers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from netns.base.addresses import host_port_text
from netns.base.options import Size, json_option
from netns.base.output import print_json
from nitro_emu.cli.volume_keys import public_key
from nitro_emu.cli.volume_options import ServerOption, catalog_option, name_argument
from nitro_emu.ebs import remote
from nitro_emu.ebs.catalog import Catalog, ServerAddress, Volume, new_id, place
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.errors import VolumeError
from nitro_emu.ebs.server.service import MAX_VOLUME_BYTES
from nitro_emu.ebs.volume_key import make
from srd.cli.security import SecurityOptions, security_options


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
    if as_json:
        replicas_at = [{"server": host_port_text(each.host, each.port), "domain": each.domain} for each in places]
        print_json({"volume": name, "size_bytes": size_bytes, "replicas": replicas_at})
        return
    at = ", ".join(f"{host_port_text(each.host, each.port)} ({each.domain})" for each in places)
    click.echo(f"nitro-volume: {name}: {size_bytes} bytes, {len(places)} replicas at {at}")
