"""`nitro-card attest` and `audit`: what a card proves of itself, and the record of all that it was asked for."""

from __future__ import annotations

import base64
import binascii
import os
import re
from pathlib import Path
from typing import Any

import click

from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.program import CommandGroup
from netns.base.tables import print_result
from nitro_emu.card.control import ask
from nitro_emu.card.control_calls import MAX_NONCE_BYTES
from nitro_emu.cli.options import HexBytes, run_dir_option
from nitro_emu.errors import CardError
from nitro_emu.trust.audit_log import examine_log_untrusted


@click.command()
@run_dir_option
@click.option(
    "--nonce",
    type=HexBytes(most=MAX_NONCE_BYTES),
    help="Bytes that the document repeats: so it is no old one.",
)
@click.option(
    "--user-data",
    type=HexBytes(most=MAX_NONCE_BYTES, or_file=True),
    help="Bytes that the document has besides; @FILE: those of a file.",
)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), help="Write the document there, raw. Default: base64 on stdout."
)
@json_option
def attest(*, run_dir: Path, nonce: bytes | None, user_data: bytes | None, output: Path | None, as_json: bool) -> None:
    """Get a signed document of the software that a card runs and of its settings; nitro-verify checks it.

    A card without a security chip can sign nothing. It prints what it states as JSON, and says that nothing proves it.
    """
    given = {"nonce": nonce, "user_data": user_data}
    found = ask(run_dir, "attest", **{name: value.hex() for name, value in given.items() if value is not None})
    if found.get("signed") is not True:
        _print_unsigned(found, output=output)
        return
    document = _document_untrusted(found.get("document"))
    if output is not None:
        _write_document(output, document)
    if as_json:
        print_json({"signed": True, "document": base64.b64encode(document).decode()})
    elif output is None:
        click.echo(base64.b64encode(document).decode())


@click.group(cls=CommandGroup)
def audit() -> None:
    """Check the record of all that a card was asked for, or show its head."""


@audit.command()
@run_dir_option
@json_option
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the head as the chip signs it there, raw.")
def head(*, run_dir: Path, as_json: bool, output: Path | None) -> None:
    """Show where a running card's audit log is, and its head: the hash that stands for all records so far.

    Keep the head elsewhere: with it, verify finds that records are missing at the end. A security chip signs it:
    nitro-verify shows the document's user data, which have the number of records and the head.
    """
    found = ask(run_dir, "audit")
    document = found.pop("document", None)
    shown = {"file": found.pop("path", None), **found}
    if output is not None:
        if document is None:
            raise CardError(f"{output}: not written: this card has no security chip, which signs heads")
        _write_document(output, _document_untrusted(document))
    print_result(shown, as_json=as_json)


@audit.command()
@json_option
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--head", "wanted", metavar="HEX", help="A head that was shown earlier: it must be in the log.")
def verify(*, as_json: bool, file: Path, wanted: str | None) -> None:
    """Check every record of FILE, and show their number and the head.

    The exit status is 1 if one was changed, removed, inserted or exchanged; the first is named.
    """
    if wanted is not None and not re.fullmatch(r"[0-9a-fA-F]{96}", wanted):
        raise click.UsageError(f"--head: {wanted!r:.100} is no SHA-384 hash of 96 hexadecimal digits")
    found = examine_log_untrusted(file, head=wanted)
    shown: dict[str, object] = {"records": found.records, "head": found.head}
    if wanted is not None:
        shown["records_after_head"] = found.after_head
    print_result(shown, as_json=as_json)


def _document_untrusted(text: Any) -> bytes:
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


def _write_document(output: Path, document: bytes) -> None:
    """Write a document to a file. Raises CardError."""
    try:
        output.write_bytes(document)
    except OSError as error:
        raise CardError(f"{os.fspath(output)}: cannot be written: {error.strerror}") from error
