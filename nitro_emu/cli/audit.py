"""`nitro-card audit`: check the record of all that a card was asked for."""

from __future__ import annotations

import re
from pathlib import Path

import click

from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.program import CommandGroup
from nitro_emu.card.control import ask
from nitro_emu.cli.attest import document_untrusted, write_document
from nitro_emu.cli.options import run_dir_option
from nitro_emu.cli.tables import print_fields
from nitro_emu.errors import CardError
from nitro_emu.trust.audit_log import examine_log_untrusted


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
        write_document(output, document_untrusted(document))
    if as_json:
        print_json(shown)
    else:
        print_fields(shown)


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
    if as_json:
        print_json(shown)
    else:
        print_fields(shown)
