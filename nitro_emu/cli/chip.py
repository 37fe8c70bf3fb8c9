"""`nitro-chip`: the security chip of a card, and what its vendor signs.

Exit status 0: done; 1: it failed, or the log does not match; 2: wrong usage. Errors are one line on stderr.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from netns.base.files import write_whole
from netns.base.options import json_lines_option, json_option
from netns.base.output import print_json
from netns.base.printable import printable
from netns.base.program import Program, version_option
from netns.base.tables import count, print_fields, print_result, print_table, table
from nitro_emu.chip.chip import BootState, Chip, utc_now
from nitro_emu.chip.client import ChipClient
from nitro_emu.chip.messages import CHIP_SOCKET
from nitro_emu.chip.pcrs import PcrEvent, event_untrusted, replay
from nitro_emu.chip.server import ChipServer, locked
from nitro_emu.chip.store import ChipStore
from nitro_emu.command import STATUSES
from nitro_emu.daemon_process import logging_to_stderr, say_ready, until_stopped
from nitro_emu.errors import TrustError
from nitro_emu.trust.confinement import confine, forbid_dumps
from nitro_emu.trust.key_files import make_key_files, read_private_key, read_public_key
from nitro_emu.trust.manifest import MAX_VERSION, make_manifest, sign_manifest
from nitro_emu.trust.measure import software_root
from nitro_emu.trust.pki import certificate_pem

_log: Final = logging.getLogger(__name__)
_path: Final = click.Path(path_type=Path)
_directory_argument: Final = click.argument("directory", metavar="DIR", type=_path)


@click.group("nitro-chip", cls=Program, statuses=STATUSES)
@version_option("nitro-chip")
def cli() -> None:
    """Run a card's security chip: it measures the card, and gives it its key only if all is as signed.

    First steps:

    \b
      nitro-chip make-vendor-key vendor.pem           make the key that signs what cards may run
      nitro-chip init chip-a --vendor-key vendor.pub.pem --card card-a
      nitro-chip sign-manifest --key vendor.pem --card card-a --edition 1 --config card-a.yaml -o card-a.manifest
      nitro-chip run chip-a                           serve the chip, until a signal
    """  # noqa: D301 - \b is click's mark for "do not rewrap"


# -- the vendor -------------------------------------------------------------------------------------------------


@cli.command("make-vendor-key")
@click.argument("key_file", metavar="KEY.pem", type=_path)
@json_option
def make_vendor_key(*, key_file: Path, as_json: bool) -> None:
    """Make the vendor's key: KEY.pem, which is secret, and KEY.pub.pem, which chips are made with."""
    public = make_key_files(key_file)
    text = f"nitro-chip: {key_file} is the private key; make chips with {public}"
    print_result({"file": str(key_file), "public_file": str(public)}, as_json=as_json, text=text)


@cli.command("sign-manifest")
@click.option("--key", "key_file", metavar="KEY.pem", type=_path, required=True, help="The vendor's private key.")
@click.option("--card", "name", metavar="NAME", required=True, help="The card's name, as its chip was made with.")
@click.option(
    "--edition", "version", type=click.IntRange(1, MAX_VERSION), required=True, help="Never below one that has run."
)
@click.option("--config", type=_path, required=True, help="The card's settings, a YAML file.")
@click.option(
    "--image-root", type=_path, help="Directory of the packages srd, devmem and nitro_emu. Default: of this command."
)
@click.option("-o", "--output", type=_path, required=True, help="The manifest's file, which is replaced.")
@json_option
def sign_manifest_command(
    *, key_file: Path, name: str, version: int, config: Path, image_root: Path | None, output: Path, as_json: bool
) -> None:
    """Measure software and settings as they are now, and sign that a card may run them.

    Prints the registers (PCRs) that the card then attests, for nitro-verify --pcr. PCR1 is not among them: it is the
    interpreter's and the installed distributions', as the chip finds them.
    """
    key = read_private_key(key_file)
    manifest = make_manifest(
        name=name,
        version=version,
        image_root=image_root or software_root(),
        configuration=config,
        issued_at_s=int(time.time()),
    )
    _write_file(output, sign_manifest(manifest, key=key))
    pcrs = {f"PCR{index}": value.hex() for index, value in sorted(manifest.pcrs(vendor=key.public_key()).items())}
    if as_json:
        print_json({"manifest": str(output), "name": name, "version": version, "pcrs": pcrs})
        return
    click.echo(f"nitro-chip: {output}: card {name}, version {version}, {count(list(manifest.files), 'file')}")
    print_fields(pcrs)


def _write_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole. Raises TrustError."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise TrustError(f"{path}: cannot be written: {error.strerror}; give another name") from error


# -- the chip ---------------------------------------------------------------------------------------------------


@cli.command()
@_directory_argument
@click.option("--vendor-key", metavar="PUB.pem", type=_path, required=True, help="Whose manifests it accepts.")
@click.option("--card", metavar="NAME", required=True, help="Name of the card whose chip it is.")
@json_option
def init(*, directory: Path, vendor_key: Path, card: str, as_json: bool) -> None:
    """Make a chip in DIR, which must be new or empty: its root certificate, and the card's key."""
    store = ChipStore.create(directory.absolute(), vendor=read_public_key(vendor_key), card=card, now=utc_now())
    key = base64.b64encode(store.load().public_key).decode()
    text = f"nitro-chip: {directory} is the chip of {card}, whose public key is {key}"
    print_result({"directory": str(directory), "card": card, "public_key": key}, as_json=as_json, text=text)


@cli.command()
@_directory_argument
@click.option("--socket", "socket_file", type=_path, help=f"Where it listens. Default: DIR/{CHIP_SOCKET}.")
@click.option("--card-uid", type=click.IntRange(0), metavar="UID", help="The card's user, if not root or the chip's.")
@click.option(
    "--confine/--no-confine",
    "is_confined",
    default=True,
    help="Give up what a chip does not need (seccomp, Landlock). Default: yes.",
)
@json_lines_option
def run(*, directory: Path, socket_file: Path | None, card_uid: int | None, is_confined: bool, as_json: bool) -> None:
    """Serve the chip in DIR until SIGTERM or SIGINT.

    Prints one line when a card can boot; the log goes to stderr. A card that runs goes on when its chip ends, but can
    attest no more, and none can start.
    """
    if card_uid not in {None, 0, os.geteuid()} and socket_file is None:
        raise click.UsageError(f"--card-uid needs --socket, too: only the chip's user may enter {directory}")
    directory = directory.absolute()
    path = directory / CHIP_SOCKET if socket_file is None else socket_file.absolute()
    with logging_to_stderr(as_json=as_json), locked(directory):
        forbid_dumps()
        chip = Chip(ChipStore(directory))
        with ChipServer(chip, path=path, card_uid=card_uid) as server:
            writable = sorted({directory, path.parent}) if is_confined else []
            ready = partial(_say_ready, chip, directory=directory, path=path, as_json=as_json)
            asyncio.run(until_stopped(_serve(chip, server, writable=writable, ready=ready)))


async def _serve(chip: Chip, server: ChipServer, *, writable: Sequence[Path], ready: Callable[[], None]) -> None:
    """Serve; if there are any directories, nothing but these can be written to from now on."""
    for measure in confine(landlock_write=writable) if writable else ():
        _log.info("confined: %s", measure)
    chip.start()
    ready()
    await server.run()


def _say_ready(chip: Chip, *, directory: Path, path: Path, as_json: bool) -> None:
    card = chip.status()["card"]
    line = f"nitro-chip: {card or 'a damaged chip'} is served at {path}"
    say_ready(line, as_json=as_json, card=card, directory=str(directory), socket=str(path))


@cli.command()
@_directory_argument
@json_option
def status(*, directory: Path, as_json: bool) -> None:
    """Show the state of the chip that serves DIR (or its socket): RUN, or SEALED and the reason, or RESET."""
    found = _ask_status(directory)
    if as_json:
        print_json(found)
        return
    pcrs = found.pop("pcrs")
    print_fields(found)
    click.echo()
    print_fields({f"PCR{index}": value for index, value in pcrs.items() if value.strip("0")})


def _ask_status(directory: Path) -> dict[str, Any]:
    """Return the status as JSON has it. Raises TrustError."""
    with ChipClient.connect(directory) as client:
        found = asyncio.run(client.status())
    pcrs = found.get("pcrs")
    if not isinstance(pcrs, dict) or not all(isinstance(value, bytes) for value in pcrs.values()):
        raise TrustError("the chip's status has no registers; it is of another version: restart it")
    return {**found, "pcrs": {str(index): value.hex() for index, value in sorted(pcrs.items())}}


@cli.command()
@_directory_argument
@json_option
def root(*, directory: Path, as_json: bool) -> None:
    """Print the certificate of the chip's root in PEM, for nitro-verify --root."""
    pem = certificate_pem(ChipStore(directory).load().root.certificate).decode()
    print_result({"directory": str(directory), "certificate": pem}, as_json=as_json, text=pem.rstrip("\n"))


@cli.command()
@_directory_argument
@json_option
def key(*, directory: Path, as_json: bool) -> None:
    """Print the card's public key (X25519) in base64, for the control plane's file."""
    found = base64.b64encode(ChipStore(directory).load().public_key).decode()
    print_result({"directory": str(directory), "public_key": found}, as_json=as_json, text=found)


@cli.command()
@_directory_argument
@json_option
def log(*, directory: Path, as_json: bool) -> None:
    """Show what the last boot measured, and compute the registers from it.

    Fails if the registers of the running chip (or those kept with the log) are not what the log makes them.
    """
    record = ChipStore(directory).read_boot_untrusted()
    events = _events_untrusted(record)
    pcrs, source = _registers(directory, record)
    if as_json:
        print_json({**record, "registers": source})
    else:
        print_fields({name: record.get(name) for name in ("at", "state", "reason", "version")})
        click.echo()
        _print_events(events)
    for index, value in replay(events).items():
        if value.hex() != pcrs.get(str(index)):
            raise TrustError(f"PCR{index} of {source} is not what the log makes it; one of both was changed")
    if not as_json:
        click.echo(f"\nthe registers of {source} are what the log makes them")


def _events_untrusted(record: Mapping[str, Any]) -> list[PcrEvent]:
    events = record.get("events")
    if not isinstance(events, list):
        raise TrustError("the record of the last boot has no events; boot the card again")
    return [event_untrusted(event) for event in events]


def _registers(directory: Path, record: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
    """Return the registers to compare with, and whose they are: the chip's if it has booted a card, else the file's."""
    try:
        found = _ask_status(directory)
    except TrustError:
        found = {"state": BootState.RESET.value}
    if found["state"] in {BootState.RUN.value, BootState.SEALED.value}:
        return found["pcrs"], "the running chip"
    pcrs = record.get("pcrs")
    return pcrs if isinstance(pcrs, dict) else {}, "the log's own record"


def _print_events(events: list[PcrEvent]) -> None:
    made = table("PCR", "measurement", "of")
    made.columns[2].justify = "left"
    for event in events:
        made.add_row(str(event.index), event.digest.hex(), printable(event.description))
    print_table(made)


if __name__ == "__main__":
    cli()
