"""`nitro-card attest`: a document, signed by the security chip, of what a card runs."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

import click

from netns.base.options import json_option
from netns.base.output import print_json
from nitro_emu.card.control import ask
from nitro_emu.card.control_calls import MAX_NONCE_BYTES, bytes_untrusted
from nitro_emu.card.control_gate import CallError
from nitro_emu.cli.options import run_dir_option
from nitro_emu.errors import CardError


@click.command()
@run_dir_option
@click.option("--nonce", metavar="HEX", help="Bytes that the document repeats, so that it is not an old one.")
@click.option("--user-data", metavar="HEX|@FILE", help="Bytes that the document has besides; @FILE: those of a file.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Write the document there, raw. Default: base64 on stdout."
)
@json_option
def attest(*, run_dir: Path, nonce: str | None, user_data: str | None, output: Path | None, as_json: bool) -> None:
    """Get a signed document of the software that a card runs and of its settings; nitro-verify checks it.

    A card without a security chip can sign nothing. It prints what it states as JSON, and says that nothing proves it.
    """
    arguments = _arguments(nonce, user_data=user_data)
    found = ask(run_dir, "attest", **arguments)
    if found.get("signed") is not True:
        _print_unsigned(found, output=output)
        return
    document = document_untrusted(found.get("document"))
    if output is not None:
        write_document(output, document)
    if as_json:
        print_json({"signed": True, "document": base64.b64encode(document).decode()})
    elif output is None:
        click.echo(base64.b64encode(document).decode())


def _arguments(nonce: str | None, *, user_data: str | None) -> dict[str, str]:
    """Return what is asked for, in hexadecimal. Raises UsageError."""
    data = user_data
    if user_data is not None and user_data.startswith("@"):
        data = _read("--user-data", Path(user_data[1:])).hex()
    given = {"nonce": nonce, "user_data": data}
    for name, value in given.items():
        try:
            bytes_untrusted("--" + name.replace("_", "-"), value)
        except CallError as error:
            raise click.UsageError(str(error)) from error
    return {name: value for name, value in given.items() if value is not None}


def _read(option: str, path: Path) -> bytes:
    """Return a file's content. Raises UsageError if it cannot be read, or is too long."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_NONCE_BYTES + 1)
    except OSError as error:
        raise click.UsageError(f"{option}: {path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_NONCE_BYTES:
        raise click.UsageError(f"{option}: {path}: has more than {MAX_NONCE_BYTES} bytes, which a document may have")
    return content


def document_untrusted(text: Any) -> bytes:
    """Return a document in a card's answer, in base64. Raises CardError."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise CardError(f"the card's answer has no document ({error}); it is of another version, restart it") from error


def _print_unsigned(found: dict[str, Any], *, output: Path | None) -> None:
    reason = found.get("reason", "the card does not say why")
    if output is not None:
        raise CardError(
            f"{output}: not written: there is no signed document ({reason}); leave out --output to see more"
        )
    print_json(found)
    click.echo(f"nitro-card: nothing proves this statement: {reason}", err=True)


def write_document(output: Path, document: bytes) -> None:
    """Write a document to a file. Raises CardError."""
    try:
        output.write_bytes(document)
    except OSError as error:
        raise CardError(f"{os.fspath(output)}: cannot be written: {error.strerror}") from error
