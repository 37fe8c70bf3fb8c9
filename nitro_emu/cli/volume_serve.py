"""`nitro-volume serve`: a volume server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from netns.base.addresses import host_port_text, reached_at
from netns.base.collector import tune_collector
from netns.base.event_loop import run
from netns.base.options import json_lines_option
from nitro_emu.daemon_process import logging_to_stderr, raise_descriptor_limit, say_ready, until_stopped
from nitro_emu.ebs.remote import DEFAULT_PORT
from nitro_emu.ebs.server.service import ServerConfig, serve
from srd.cli.options import bind_option, port_option
from srd.cli.security import SecurityOptions, authorized_keys_option, security_options


@click.command("serve")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@port_option(DEFAULT_PORT, help_text="Where hosts reach it.")
@bind_option
@security_options
@authorized_keys_option
@json_lines_option
def serve_command(
    *, directory: Path, port: int, bind: str | None, authorized_keys: Path | None, as_json: bool, **security: Any
) -> None:
    """Serve the replicas of volumes in DIR, which is made if missing, until SIGTERM or SIGINT.

    Prints one line when hosts can attach them; the log goes to stderr. Whoever may connect may write: say who by
    --psk-file, --cert or --authorized-keys, or --plain for a network that is trusted.
    """
    if authorized_keys is None and not any(security.values()):
        raise click.UsageError("anyone could write; give --psk-file, --cert with --ca, --authorized-keys, or --plain")
    chosen = SecurityOptions(**security).security(authorized_keys=authorized_keys)
    config = ServerConfig(directory=directory, host=bind, port=port, security=chosen)
    raise_descriptor_limit()
    with logging_to_stderr(as_json=as_json):
        run(_serve(config, as_json=as_json))


async def _serve(config: ServerConfig, *, as_json: bool) -> None:
    def on_ready(address: tuple[str, int]) -> None:
        tune_collector()
        text = host_port_text(reached_at(address[0]), address[1])
        line = f"nitro-volume: {config.directory} is served at {text}"
        say_ready(line, as_json=as_json, directory=str(config.directory), address=text)

    await until_stopped(serve(config, on_ready=on_ready))
