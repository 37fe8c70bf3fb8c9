"""Options that several commands of `nitro-volume` have."""

from __future__ import annotations

from typing import Any, Final

import click

from netns.base.names import NAME_RULE, is_name
from netns.base.options import HostPort, place_option
from nitro_emu.ebs.attachment import DEFAULT_RUN_DIR
from nitro_emu.ebs.catalog import DEFAULT_PATH, ServerAddress
from nitro_emu.ebs.remote import DEFAULT_PORT

RUN_DIR_VARIABLE: Final = "NITRO_VOLUME_DIR"
CATALOG_VARIABLE: Final = "NITRO_VOLUME_CATALOG"

run_dir_option: Final = place_option(
    "--run-dir",
    variable=RUN_DIR_VARIABLE,
    default=DEFAULT_RUN_DIR,
    help_text="Directory of the sockets of attached volumes.",
)
catalog_option: Final = place_option(
    "--catalog", variable=CATALOG_VARIABLE, default=DEFAULT_PATH, help_text="File of the volumes that there are."
)


def _name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    if not is_name(value):
        raise click.UsageError(f"{value!r} is no name of a volume; {NAME_RULE}")
    return value


name_argument: Final = click.argument("name", callback=_name)


class ServerOption(click.ParamType[ServerAddress]):
    """DOMAIN=HOST[:PORT]."""

    name = "DOMAIN=HOST[:PORT]"
    _address = HostPort(default_port=DEFAULT_PORT)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ServerAddress:
        """Return the server; fail with one line."""
        domain, sign, address = str(value).partition("=")
        if not sign or not is_name(domain):
            self.fail(f"{value!r} is not DOMAIN=HOST[:PORT], such as rack-1=192.0.2.1:{DEFAULT_PORT}", param, ctx)
        host, port = self._address.convert(address, param, ctx)
        return ServerAddress(host, port, domain)
