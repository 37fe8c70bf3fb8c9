"""A map as the control plane sends it to cards: a signed document that expires.

A COSE_Sign1 message (ES384) whose payload is two lines of JSON, a header and the map:

    {"kind": "nitro-vpc-map", "version": 1795568461000, "issued_at_s": 1795568461.0, "lifetime_s": 60.0}
    {"lifetime_s": 60.0, "cards": {...}, "vpcs": {...}, "peerings": [...]}

Everything that a card believes is under the signature. To parse a large map takes some 100 ms. So the header is read
first, and a document that is old, expired or of the future is refused by it: to send it again costs its sender about
as much as the card. Which version a card has is for the card to know, since this module keeps nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from pydantic import Field

from netns.base.naming import named
from netns.base.yaml_file import Strict, validated
from nitro_emu.errors import TrustError, VpcError
from nitro_emu.trust.cose import sign1, verify1_untrusted
from nitro_emu.vpc.model import MAX_LIFETIME_S, VpcMap, checked_untrusted

MAX_DOCUMENT_BYTES: Final = 1 << 20
"""Twice what 4,096 interfaces take."""

MAX_MAP_BYTES: Final = MAX_DOCUMENT_BYTES - 4096
"""Of the map alone, so that a map that can be sent once can be sent with any version and time."""

MAX_AHEAD_S: Final = 5.0
"""How far the clocks of control plane and card may be apart. A document from further ahead is refused."""

MAX_HEADER_BYTES: Final = 1024

KIND: Final = "nitro-vpc-map"


class StaleMapError(VpcError):
    """A document was signed by the control plane, but its version is not newer than the one wanted."""

    def __init__(self, version: int, *, newer_than: int) -> None:
        """`version`: the document's."""
        super().__init__(f"map: version {version} is not newer than {newer_than}")
        self.version = version


class UntimelyMapError(VpcError):
    """A document was signed by the control plane, but is expired or of the future by the card's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapDocument:
    """A document that was verified."""

    map: VpcMap
    version: int
    issued_at_s: float
    """Since 1970, by the control plane's clock."""
    lifetime_s: float
    content: bytes
    """The map as it was sent."""

    @property
    def expires_at_s(self) -> float:
        """When a card stops to go by it, since 1970."""
        return self.issued_at_s + self.lifetime_s


class _Header(Strict):
    kind: Literal["nitro-vpc-map"]
    version: int = Field(ge=1, lt=1 << 63)
    issued_at_s: float = Field(ge=0, lt=1 << 53)
    lifetime_s: float = Field(gt=0, le=MAX_LIFETIME_S)


def sign_map(vpc_map: VpcMap, *, version: int, issued_at_s: float, key: EllipticCurvePrivateKey) -> bytes:
    """Return the document of a map. Raises VpcError for a map that is too large, or a key that is not of P-384."""
    content = vpc_map.model_dump_json(exclude_none=True)
    if len(content) > MAX_MAP_BYTES:
        raise VpcError(f"the map has {len(content)} bytes as JSON; at most {MAX_MAP_BYTES} are sent: make two maps")
    header = {"kind": KIND, "version": version, "issued_at_s": issued_at_s, "lifetime_s": vpc_map.lifetime_s}
    try:
        return sign1(f"{json.dumps(header)}\n{content}".encode(), key=key)
    except TrustError as error:
        raise VpcError(str(error)) from None


def open_map_untrusted(
    data: bytes,
    *,
    key: EllipticCurvePublicKey,
    now_s: float,
    newer_than: int | None = None,
    before: MapDocument | None = None,
) -> MapDocument:
    """Return what a document says, if this key has signed it, it is neither expired nor of the future, and is newer.

    `now_s`: the card's clock, since 1970. `newer_than`: the version that the card has; None: any version is taken.
    `before`: the document that the card has; its map itself is returned if this one has the same.
    Raises VpcError with the reason: StaleMapError or UntimelyMapError if that is in the header, before the map is read.
    """
    with named("map: ", TrustError, error=VpcError):
        content = verify1_untrusted(data, key=key, max_bytes=MAX_DOCUMENT_BYTES)
    first, _, rest = content.partition(b"\n")
    header = _header_untrusted(first)
    if newer_than is not None and header.version <= newer_than:
        raise StaleMapError(header.version, newer_than=newer_than)
    _check_time(header, now_s=now_s)
    return _document_untrusted(rest, header=header, before=before)


def _header_untrusted(line: bytes) -> _Header:
    if len(line) > MAX_HEADER_BYTES:
        raise VpcError(f"map: the header has {len(line)} bytes; at most {MAX_HEADER_BYTES} are read")
    fields = _json_untrusted(line, name="the header")
    with named("map: header: ", VpcError):
        return validated(_Header, fields, error=VpcError)


def _document_untrusted(content: bytes, *, header: _Header, before: MapDocument | None) -> MapDocument:
    if before is not None and content == before.content:
        vpc_map = before.map
    else:
        found = _json_untrusted(content, name="the second line")
        with named("map: ", VpcError):
            vpc_map = checked_untrusted(found)
    if vpc_map.lifetime_s != header.lifetime_s:
        raise VpcError(f"map: lifetime_s: {vpc_map.lifetime_s:g} is not the header's {header.lifetime_s:g}")
    return MapDocument(
        map=vpc_map,
        version=header.version,
        issued_at_s=header.issued_at_s,
        lifetime_s=header.lifetime_s,
        content=content,
    )


def _check_time(header: _Header, *, now_s: float) -> None:
    """Raise UntimelyMapError for a document that a card may not go by now."""
    if (ahead_s := header.issued_at_s - now_s) > MAX_AHEAD_S:
        raise UntimelyMapError(
            f"map: version {header.version} was issued {ahead_s:.0f} s in the future; a clock is wrong: "
            "compare the control plane's and this card's"
        )
    if (late_s := now_s - (header.issued_at_s + header.lifetime_s)) > 0:
        raise UntimelyMapError(
            f"map: version {header.version} expired {late_s:.0f} s ago (lifetime {header.lifetime_s:g} s); "
            "it is an old one, or a clock is wrong"
        )


def _json_untrusted(content: bytes, *, name: str) -> dict[str, Any]:
    """Return the object that a part is, strictly: UTF-8, no key twice, no NaN. Raises VpcError."""
    try:
        part = json.loads(content.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise VpcError(f"map: {name} is not JSON: {error!s:.200}") from None
    if not isinstance(part, dict):
        raise VpcError(f"map: {name} is no JSON object")
    return part


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")
