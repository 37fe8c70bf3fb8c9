"""The options for encryption, and `srd keygen`. Keys are in files, never on a command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from netns.base.addresses import parse_target
from netns.base.options import json_option
from netns.base.output import print_json
from srd.cli.options import require_one_of
from srd.errors import UsageError
from srd.secure.config import Cert, Keys, Plain, Psk, SecurityConfig
from srd.secure.keys import (
    FINGERPRINT_CHARACTERS,
    create,
    create_psk,
    fingerprint,
    load,
    public_text,
    read_authorized,
    read_psk,
    user_key_path,
)
from srd.secure.noise import public_bytes

_F = TypeVar("_F", bound=Callable[..., Any])
_FILE = click.Path(path_type=Path, dir_okay=False)
_FINGERPRINT = re.compile(rf"[A-Za-z0-9_-]{{{FINGERPRINT_CHARACTERS}}}")


class TargetAddress(click.ParamType[tuple[str, int, str | None]]):
    """HOST[:PORT][#FINGERPRINT], as what listens prints it."""

    name = "HOST[:PORT][#FINGERPRINT]"

    def __init__(self, *, default_port: int, example_port: int = 0) -> None:
        """`example_port`: of the example in messages, if it is not the default."""
        self._default_port = default_port
        self._example_port = example_port or default_port

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int, str | None]:
        """Return host, port and fingerprint; fail with one line that describes the error."""
        if isinstance(value, tuple):
            return value
        text, sign, expected = str(value).partition("#")
        if sign and not _FINGERPRINT.fullmatch(expected):
            wanted = f"after # comes a fingerprint of {FINGERPRINT_CHARACTERS} characters, as the other end prints it"
            raise click.UsageError(f"{value!r}: {wanted}")
        try:
            host, port = parse_target(text, default_port=self._default_port, example_port=self._example_port)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return host, port, expected or None


def security_options(command: _F) -> _F:
    """Add the options that both ends have."""
    for option in (
        click.option(
            "--psk-file", type=_FILE, help="Use the symmetric key or passphrase in this file, as the other end does."
        ),
        click.option(
            "--cert",
            type=_FILE,
            help="Use the certificate and the private key in this file (PEM), and accept ends that --ca certifies.",
        ),
        click.option("--ca", type=_FILE, help="With --cert: the certificates of the authorities to trust (PEM)."),
        click.option("--key", type=_FILE, help="Use the private key in this file instead of the user's."),
        click.option("--plain", is_flag=True, help="Do not encrypt: for trusted networks, and for comparisons."),
    ):
        command = option(command)
    return command


known_hosts_option = click.option(
    "--known-hosts", type=_FILE, help="Use this file of receivers' public keys instead of the user's."
)
authorized_keys_option = click.option(
    "--authorized-keys", type=_FILE, help="Accept only senders whose public key is in this file, one a line."
)


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """What `security_options` adds."""

    plain: bool
    key: Path | None
    psk_file: Path | None
    cert: Path | None
    ca: Path | None

    def security(self, *, known_hosts: Path | None = None, authorized_keys: Path | None = None) -> SecurityConfig:
        """Return the setting. Raises click.UsageError for options that contradict each other, or for a file."""
        require_one_of(
            {
                "--plain": self.plain,
                "--psk-file": self.psk_file,
                "--cert": self.cert,
                "--known-hosts": known_hosts,
                "--authorized-keys": authorized_keys,
            }
        )
        if self.key is not None and (self.plain or self.psk_file or self.cert):
            raise click.UsageError("--key belongs to public keys; leave it out, or --plain, --psk-file and --cert")
        if (self.cert is None) is not (self.ca is None):
            raise click.UsageError("--cert and --ca belong together; give both, or neither")
        try:
            if self.plain:
                return Plain()
            if self.cert is not None and self.ca is not None:
                return Cert.read(self.cert, authorities=self.ca)
            if self.psk_file is not None:
                return Psk(read_psk(self.psk_file))
            authorized = None if authorized_keys is None else read_authorized(authorized_keys)
            own = None if self.key is None else load(self.key)
            return Keys(private_key=own, known_hosts=known_hosts, authorized=authorized)
        except UsageError as error:
            raise click.UsageError(str(error)) from error


def check_fingerprint(target: tuple[str, int, str | None], security: SecurityConfig) -> None:
    """Raise click.UsageError for a target with a fingerprint, where no public key is used."""
    host, _, expected = target
    if expected is not None and not isinstance(security, Keys):
        raise click.UsageError(
            f"{host}#{expected}: a fingerprint is of a public key; leave out --plain, --psk-file and --cert, or it"
        )


@click.command()
@click.argument("file", type=_FILE, required=False)
@click.option("--psk", is_flag=True, help="Make a symmetric key in FILE, for --psk-file at both ends.")
@json_option
def keygen(*, file: Path | None, psk: bool, as_json: bool) -> int:
    """Make a key pair in FILE, by default this user's, or show the one that is there.

    Prints the public key, for --authorized-keys, and its fingerprint, as it follows # in an address.
    """
    if psk:
        if file is None:
            raise click.UsageError("--psk needs a FILE for the symmetric key")
        create_psk(file)
        if as_json:
            print_json({"file": str(file)})
        else:
            click.echo(f"{file}: has a new symmetric key; copy the file to the other end, and keep it secret")
        return 0
    path = user_key_path() if file is None else file
    public = public_bytes(load(path) if path.exists() else create(path))
    if as_json:
        print_json({"public_key": public_text(public), "fingerprint": fingerprint(public), "file": str(path)})
        return 0
    click.echo(public_text(public))
    click.echo(f"fingerprint {fingerprint(public)}, key in {path}")
    return 0
