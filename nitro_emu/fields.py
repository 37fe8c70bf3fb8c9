"""Values in a card's settings, and what is wrong with them: names, amounts, files, directories, addresses, PCRs."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo

from netns.base.addresses import parse_host_port
from netns.base.names import NAME
from netns.base.units import parse_count, parse_rate_bps, parse_size

PCR_BYTES: Final = 48
"""SHA-384."""


def _of_text(parse: Callable[[str], int]) -> Callable[[object], object]:
    """Return a validator of amounts as netns.base.units has them; what is no text stays as it is, for pydantic."""
    return lambda value: parse(value) if isinstance(value, str) else value


def _file_untrusted(value: object, info: ValidationInfo) -> object:
    """Return a file's name as a path, relative to the settings' file."""
    if not isinstance(value, str):
        return value
    if not value or "\0" in value:
        raise ValueError(f"{value!r} is no name of a file; give one, or leave the key out")
    base: Path = (info.context or {}).get("base", Path())
    return base / value


def _directory_untrusted(value: object) -> object:
    """Return a directory's name as a path, which must not depend on where the card is started."""
    if not isinstance(value, str | Path) or not Path(value).is_absolute() or "\0" in str(value):
        raise ValueError(f"{str(value)!r} is no absolute path; give one, such as /run/nitro-card")
    return Path(value)


def _pcr_untrusted(value: object) -> object:
    """Return a PCR's value from its hexadecimal digits."""
    if not isinstance(value, str) or len(value) != 2 * PCR_BYTES or not set(value) <= set("0123456789abcdefABCDEF"):
        raise ValueError(f"{str(value)[:100]!r} is no PCR; give {2 * PCR_BYTES} hexadecimal digits in quotes")
    return bytes.fromhex(value)


def _pem_untrusted(value: object, info: ValidationInfo) -> object:
    """Return PEM text as it is, and anything else as a file's name."""
    if isinstance(value, str) and value.startswith("-----BEGIN "):
        return value
    return _file_untrusted(value, info)


def _host_port_untrusted(value: object) -> object:
    """Return ADDR:PORT as a pair; what is no text stays as it is, for pydantic."""
    if not isinstance(value, str):
        return value
    host, port = parse_host_port(value, example_port=9100)
    return str(ipaddress.ip_address(host)), port


Name = Annotated[str, Field(pattern=f"^{NAME}$")]
Rate = Annotated[int, BeforeValidator(_of_text(parse_rate_bps))]
Count = Annotated[int, BeforeValidator(_of_text(parse_count))]
Pcr = Annotated[bytes, BeforeValidator(_pcr_untrusted), PlainSerializer(bytes.hex)]
Size = Annotated[int, BeforeValidator(_of_text(parse_size))]
Pem = Annotated[str | Path, BeforeValidator(_pem_untrusted)]
File = Annotated[Path, BeforeValidator(_file_untrusted)]
HostPort = Annotated[tuple[str, int], BeforeValidator(_host_port_untrusted)]
Directory = Annotated[Path, BeforeValidator(_directory_untrusted)]
