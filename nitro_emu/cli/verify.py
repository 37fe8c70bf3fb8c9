"""`nitro-verify`: whether an attestation document holds, and what it proves.

Exit status 0: it holds; 1: it does not, with the first reason in one line on stderr; 2: wrong usage.
"""

from __future__ import annotations

import base64
import binascii
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import click
from cryptography import x509

from netns.base.options import json_option
from netns.base.output import print_json
from netns.base.program import ProgramCommand, version_option
from netns.base.tables import print_fields
from nitro_emu.cli.options import HexBytes
from nitro_emu.command import STATUSES
from nitro_emu.errors import TrustError
from nitro_emu.trust.chain import time_text
from nitro_emu.trust.documents import MAX_PCRS, PCR_BYTES, AttestationDocument
from nitro_emu.trust.pki import common_name, fingerprint, load_certificate_untrusted
from nitro_emu.trust.verify import Expectation, aws_root_untrusted, chain_untrusted, is_debug, verify_untrusted

MAX_FILE_BYTES: Final = 1 << 20

AWS: Final = "aws"
"""What --root takes for AWS's own root."""

_CBOR_STARTS: Final = (b"\x84", b"\xd2")
"""A COSE_Sign1 message's first byte, without and with a tag; base64 is ASCII, and has neither."""


@click.command("nitro-verify", cls=ProgramCommand, statuses=STATUSES)
@click.argument("document", metavar="DOC")
@click.option(
    "--root", required=True, metavar="PEM", help="File of the trusted root's certificate, or aws for AWS's own."
)
@click.option("--pcr", "pcrs", multiple=True, metavar="N=HEX", help="What a PCR must be; may be given for several.")
@click.option("--nonce", type=HexBytes(most=MAX_FILE_BYTES), help="What the nonce must be.")
@click.option("--public-key", metavar="FILE", help="File whose bytes the public key must be.")
@click.option("--user-data", type=HexBytes(most=MAX_FILE_BYTES, or_file=True), help="What the user data must be.")
@click.option("--valid-at", "at", metavar="TIME", help="When it must hold, as 2024-05-07T18:00:00Z; by default now.")
@click.option("--allow-debug", is_flag=True, help="Accept an enclave in debug mode (PCR0 to PCR2 zero).")
@json_option
@version_option("nitro-verify")
def cli(
    *,
    document: str,
    root: str,
    pcrs: tuple[str, ...],
    nonce: bytes | None,
    public_key: str | None,
    user_data: bytes | None,
    at: str | None,
    allow_debug: bool,
    as_json: bool,
) -> None:
    """Verify the attestation document in the file DOC, a card's or AWS Nitro's; - is stdin.

    It may be in CBOR, in hex or in base64.

    It must be signed by a key that the root vouches for, and say what the options ask for. AWS's documents are
    valid for three hours: --valid-at verifies an older one at its time.
    """
    signed = _decoded(_read(document, what="DOC"), name=document)
    moment = datetime.now(UTC) if at is None else _time(at)
    expected = Expectation(
        at=moment,
        pcrs=_pcrs(pcrs),
        nonce=nonce,
        public_key=None if public_key is None else _read(public_key, what="--public-key"),
        user_data=user_data,
        allow_debug=allow_debug,
        root=_root(root, signed=signed, name=document),
    )
    try:
        stated = verify_untrusted(signed, expected=expected)
    except TrustError as error:
        raise TrustError(_named(document, error)) from error
    _print(stated, at=moment, as_json=as_json)


def _named(document: str, error: TrustError) -> str:
    """Return an error with the document's name before it, once."""
    return str(error) if str(error).startswith(f"{document}: ") else f"{document}: {error}"


def _read(path: str, *, what: str) -> bytes:
    """Return the content of a file; that of `-` is stdin's."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"{what}: {path}: cannot be read: {reason}") from error
    if len(data) > MAX_FILE_BYTES:
        raise click.UsageError(f"{what}: {path}: has more than {MAX_FILE_BYTES} bytes")
    return data


def _decoded(data: bytes, *, name: str) -> bytes:
    """Return the CBOR of a document that may be in hex or base64. Raises TrustError if it is none of these."""
    if data.startswith(_CBOR_STARTS):
        return data
    text = b"".join(data.split())
    for decode in (binascii.unhexlify, partial(base64.b64decode, validate=True)):  # digits in hex are base64's, too
        try:
            signed = bytes(decode(text))
        except (binascii.Error, ValueError):
            continue
        if signed.startswith(_CBOR_STARTS):
            return signed
    raise TrustError(f"{name}: is no COSE_Sign1 message in CBOR, nor one in hex or base64")


def _root(text: str, *, signed: bytes, name: str) -> x509.Certificate:
    if text != AWS:
        try:
            return load_certificate_untrusted(_read(text, what="--root"), name=f"--root: {text}")
        except TrustError as error:
            raise click.UsageError(str(error)) from error
    try:
        return aws_root_untrusted(signed)
    except TrustError as error:
        raise TrustError(_named(name, error)) from error


def _pcrs(texts: tuple[str, ...]) -> Mapping[int, bytes]:
    found: dict[int, bytes] = {}
    for text in texts:
        match = re.fullmatch(r"(\d{1,2})=(.*)", text, re.ASCII)
        if match is None or int(match[1]) >= MAX_PCRS:
            raise click.UsageError(f"--pcr {text}: must be N=HEX, with N from 0 to {MAX_PCRS - 1}")
        index = int(match[1])
        try:
            value = bytes.fromhex(match[2])
        except ValueError:
            raise click.UsageError(f"--pcr {index}: {match[2][:40]!r} is not hexadecimal") from None
        if len(value) not in PCR_BYTES:
            raise click.UsageError(f"--pcr {index}: has {len(value)} bytes; a PCR has 48 (or 32, or 64)")
        if found.setdefault(index, value) != value:
            raise click.UsageError(f"--pcr {index}: is given twice, with two values; give one")
    return found


def _time(text: str) -> datetime:
    """Return a time; one without a zone is UTC."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.UsageError(f"--valid-at: {text!r} is no time; write it as 2024-05-07T18:00:00Z") from None


def _print(document: AttestationDocument, *, at: datetime, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(document, at=at))
        return
    made = datetime.fromtimestamp(document.timestamp_ms / 1000, UTC)
    chain = chain_untrusted(document)
    print_fields(
        {
            "verified at": time_text(at),
            "module": document.module_id,
            "made at": f"{time_text(made)} ({document.timestamp_ms} ms)",
            "mode": "DEBUG: it keeps nothing from its host" if is_debug(document) else "production",
            "public key": _shown(document.public_key),
            "user data": _shown(document.user_data),
            "nonce": _shown(document.nonce),
            "root": fingerprint(chain[0]),
        }
    )
    click.echo()
    print_fields({f"PCR{index}": _measurement(value) for index, value in sorted(document.pcrs.items())})
    click.echo()
    print_fields(
        {f"{number} {common_name(certificate)}": _valid(certificate) for number, certificate in enumerate(chain)}
    )


def _measurement(value: bytes) -> str:
    return value.hex() if any(value) else "zero"


def _valid(certificate: x509.Certificate) -> str:
    return f"{time_text(certificate.not_valid_before_utc)} to {time_text(certificate.not_valid_after_utc)}"


def _shown(value: bytes | None) -> str:
    """Return how people see a field: the first 32 bytes of it."""
    if value is None:
        return "none"
    return (value.hex() or "empty") if len(value) <= 32 else f"{value[:32].hex()}... ({len(value)} bytes)"


def _as_json(document: AttestationDocument, *, at: datetime) -> dict[str, object]:
    def text(value: bytes | None) -> str | None:
        return None if value is None else value.hex()

    return {
        "verified_at": time_text(at),
        "module_id": document.module_id,
        "timestamp_ms": document.timestamp_ms,
        "digest": document.digest,
        "debug": is_debug(document),
        document.pcrs_name: {str(index): value.hex() for index, value in sorted(document.pcrs.items())},
        "public_key": text(document.public_key),
        "user_data": text(document.user_data),
        "nonce": text(document.nonce),
        "chain": [
            {
                "name": common_name(certificate),
                "valid_from": time_text(certificate.not_valid_before_utc),
                "valid_until": time_text(certificate.not_valid_after_utc),
                "sha256": fingerprint(certificate),
            }
            for certificate in chain_untrusted(document)
        ],
    }


if __name__ == "__main__":
    cli()
