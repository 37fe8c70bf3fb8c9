"""`nitro-volume attach`: a volume's front, until a signal or `nitro-volume detach`."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click
import uvloop

from netns.base.collector import tune_collector
from netns.base.names import NAME_RULE, is_name
from netns.base.options import HostPort, Rate, Size
from nitro_emu.cli.volume_ask import name_argument, run_dir_option
from nitro_emu.daemon_process import logging_to_stderr, raise_descriptor_limit, say_ready
from nitro_emu.ebs.attachment import Attachment, Settings
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.limits import MAX_BYTES_PER_S, MAX_IOPS, Provisioned
from nitro_emu.ebs.memory import MemoryDevice
from srd.sd_notify import sd_notify


@click.command()
@name_argument
@run_dir_option
@click.option("--memory", "memory_bytes", type=Size(least=BLOCK_BYTES), help="A volume of this size in memory.")
@click.option(
    "--socket", type=click.Path(path_type=Path), help="Where NBD clients connect. Default: RUN_DIR/NAME.sock."
)
@click.option("--tcp", type=HostPort(example_port=10809), help="Serve NBD here; whoever reaches it has the volume.")
@click.option("--iops", type=click.IntRange(1, MAX_IOPS), help="io2's limit: requests of up to 256K a second.")
@click.option(
    "--throughput", type=Rate(least_bps=8 * BLOCK_BYTES, most_bps=8 * MAX_BYTES_PER_S), help="Default: IOPS x 256K."
)
@click.option("--metrics", type=HostPort(example_port=9402), help="Serve metrics to Prometheus here, over HTTP.")
@click.option("--json", "as_json", is_flag=True, help="Write the ready line and the log as JSON lines.")
def attach(
    *,
    name: str,
    run_dir: Path,
    memory_bytes: int | None,
    socket: Path | None,
    tcp: tuple[str, int] | None,
    iops: int | None,
    throughput: int | None,
    metrics: tuple[str, int] | None,
    as_json: bool,
) -> None:
    """Attach the volume NAME: serve it to NBD clients of this host until SIGTERM, SIGINT or `nitro-volume detach`.

    Prints one line when clients can connect; the log goes to stderr.
    """
    if not is_name(name):
        raise click.UsageError(f"{name!r} is no name of a volume; {NAME_RULE}")
    settings = Settings(
        name=name,
        run_dir=run_dir.absolute(),
        socket=socket and socket.absolute(),
        tcp=tcp,
        metrics=metrics,
        provisioned=Provisioned.io2(iops, None if throughput is None else throughput // 8),
    )
    if memory_bytes is None:
        raise click.UsageError("give --memory SIZE")
    raise_descriptor_limit()
    with logging_to_stderr(as_json=as_json):
        uvloop.run(_serve(settings, MemoryDevice(memory_bytes - memory_bytes % BLOCK_BYTES), as_json=as_json))


async def _serve(settings: Settings, device: MemoryDevice, *, as_json: bool) -> None:
    loop = asyncio.get_running_loop()
    async with Attachment.open(settings, device=device) as attachment:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, attachment.detached.set)
        tune_collector()
        addresses = attachment.addresses
        line = f"nitro-volume: {settings.name} ({device.size_bytes} bytes) is attached at {' and '.join(addresses)}"
        say_ready(line, as_json=as_json, name=settings.name, size_bytes=device.size_bytes, addresses=addresses)
        await attachment.detached.wait()
        sd_notify("STOPPING=1")
