"""`nitro-volume attach`: a volume's front, until a signal or `nitro-volume detach`."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click

from netns.base.collector import tune_collector
from netns.base.event_loop import run
from netns.base.options import HostPort, Rate, Size, json_lines_option
from nitro_emu.cli.volume_keys import prepare, private_key
from nitro_emu.cli.volume_options import catalog_option, name_argument, run_dir_option
from nitro_emu.daemon_process import logging_to_stderr, raise_descriptor_limit, say_ready
from nitro_emu.ebs import remote
from nitro_emu.ebs.attachment import Attachment, AttachmentSettings, claimed
from nitro_emu.ebs.catalog import Catalog, Volume
from nitro_emu.ebs.device import BLOCK_BYTES, BlockDevice
from nitro_emu.ebs.limits import MAX_BYTES_PER_S, MAX_IOPS, Provisioned
from nitro_emu.ebs.memory import MemoryDevice
from nitro_emu.ebs.replicas import report_of
from nitro_emu.ebs.volume_key import unwrap
from nitro_emu.ebs.xts import EncryptedDevice
from srd.cli.security import SecurityOptions, security_options
from srd.sd_notify import sd_notify
from srd.secure.config import SecurityConfig

NBD_PORT: Final = 10809
"""NBD's own (IANA)."""
METRICS_PORT: Final = 9472
"""Beside those of `srd` (9470) and `srd-lab` (9471)."""


@click.command()
@name_argument
@run_dir_option
@catalog_option
@click.option(
    "--card-file", "card", type=click.Path(path_type=Path), help="Settings of the card that it was created for."
)
@security_options
@click.option("--memory", "memory_bytes", type=Size(least=BLOCK_BYTES), help="A volume in memory instead.")
@click.option("--socket", type=click.Path(path_type=Path), help="For NBD clients. Default: RUN_DIR/NAME.sock.")
@click.option(
    "--nbd", "tcp", type=HostPort(default_port=NBD_PORT), help="Serve NBD here; whoever reaches it has the volume."
)
@click.option("--iops", type=click.IntRange(1, MAX_IOPS), help="io2's limit: requests of up to 256K a second.")
@click.option(
    "--throughput", type=Rate(least_bps=8 * BLOCK_BYTES, most_bps=8 * MAX_BYTES_PER_S), help="Default: IOPS x 256K."
)
@click.option(
    "--metrics", type=HostPort(default_port=METRICS_PORT), help="Serve metrics to Prometheus here, over HTTP."
)
@json_lines_option
def attach(
    *,
    name: str,
    run_dir: Path,
    catalog: Path,
    card: Path | None,
    memory_bytes: int | None,
    socket: Path | None,
    tcp: tuple[str, int] | None,
    iops: int | None,
    throughput: int | None,
    metrics: tuple[str, int] | None,
    as_json: bool,
    **security: Any,
) -> None:
    """Attach the volume NAME: serve it to NBD clients of this host until SIGTERM, SIGINT or `nitro-volume detach`.

    Prints one line when clients can connect; the log goes to stderr. What is written is encrypted with the volume's
    key, which only the card that it was created for can use.
    """
    settings = AttachmentSettings(
        name=name,
        run_dir=run_dir.absolute(),
        socket=socket and socket.absolute(),
        tcp=tcp,
        metrics=metrics,
        provisioned=Provisioned.io2(iops, None if throughput is None else throughput // 8),
    )
    if (card is None) == (memory_bytes is None):
        raise click.UsageError("give --card-file FILE, for a volume on servers, or --memory SIZE")
    chosen = SecurityOptions(**security).security()
    raise_descriptor_limit()
    with logging_to_stderr(as_json=as_json):
        if card is not None:
            prepare(card)
            with Catalog(catalog) as known:
                volume = known.volume(name)
            with claimed(settings) as control:
                run(_serve_volume(settings, control, volume, card=card.absolute(), security=chosen, as_json=as_json))
        elif memory_bytes is not None:
            device = MemoryDevice(memory_bytes - memory_bytes % BLOCK_BYTES)
            with claimed(settings) as control:
                run(_serve(settings, control, device, report=dict, as_json=as_json))


async def _serve_volume(
    settings: AttachmentSettings,
    control: socket.socket,
    volume: Volume,
    *,
    card: Path,
    security: SecurityConfig,
    as_json: bool,
) -> None:
    key = unwrap(volume.wrapped_key, card=await private_key(card), volume=volume.name)
    async with remote.attached(volume, security=security) as device:
        encrypted = EncryptedDevice(device, key=key)
        await _serve(settings, control, encrypted, report=lambda: report_of(device), as_json=as_json)


async def _serve(
    settings: AttachmentSettings,
    control: socket.socket,
    device: BlockDevice,
    *,
    report: Callable[[], Mapping[str, object]],
    as_json: bool,
) -> None:
    loop = asyncio.get_running_loop()
    async with Attachment.open(settings, control=control, device=device, report=report) as attachment:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, attachment.detached.set)
        tune_collector()
        addresses = attachment.addresses
        line = f"nitro-volume: {settings.name} ({device.size_bytes} bytes) is attached at {' and '.join(addresses)}"
        say_ready(line, as_json=as_json, name=settings.name, size_bytes=device.size_bytes, addresses=addresses)
        await attachment.detached.wait()
        sd_notify("STOPPING=1")
