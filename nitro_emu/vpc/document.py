"""A map as the control plane sends it to cards: a signed document that expires.

A COSE_Sign1 message (ES384) whose payload is JSON:

    {"kind": "nitro-vpc-map", "version": 1795568461000, "issued_at_s": 1795568461.0, "map": {...}}

Everything that a card believes is under the signature. A card refuses a document that is not newer than the one it has;
that is for the card to check, since this module keeps nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Literal

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
from pydantic import Field, ValidationError

from nitro_emu.errors import TrustError, VpcError
from nitro_emu.trust.cose import sign1, verify1_untrusted
from nitro_emu.vpc.fields import Strict
from nitro_emu.vpc.model import VpcMap, known_keys
from nitro_emu.yaml_file import Position, first_mistake

MAX_DOCUMENT_BYTES: Final = 1 << 20
"""Twice what 4,096 interfaces take."""

MAX_MAP_BYTES: Final = MAX_DOCUMENT_BYTES - 4096
"""Of the map alone, so that a map that can be sent once can be sent with any version and time."""

MAX_AHEAD_S: Final = 5.0
"""How far the clocks of control plane and card may be apart. A document from further ahead is refused."""

KIND: Final = "nitro-vpc-map"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapDocument:
    """A document that was verified."""

    map: VpcMap
    version: int
    issued_at_s: float
    """Since 1970, by the control plane's clock."""
    lifetime_s: float

    @property
    def expires_at_s(self) -> float:
        """When a card stops to go by it, since 1970."""
        return self.issued_at_s + self.lifetime_s


class _Payload(Strict):
    kind: Literal["nitro-vpc-map"] = KIND
    version: int = Field(ge=1, lt=1 << 63)
    issued_at_s: float = Field(ge=0, lt=1 << 53)
    map: VpcMap


def sign_map(vpc_map: VpcMap, *, version: int, issued_at_s: float, key: EllipticCurvePrivateKey) -> bytes:
    """Return the document of a map. Raises VpcError for a map that is too large, or a key that is not of P-384."""
    content = vpc_map.model_dump_json(exclude_none=True)
    if len(content) > MAX_MAP_BYTES:
        raise VpcError(f"the map has {len(content)} bytes as JSON; at most {MAX_MAP_BYTES} are sent: make two maps")
    head = json.dumps({"kind": KIND, "version": version, "issued_at_s": issued_at_s})
    try:
        return sign1(f'{head[:-1]}, "map": {content}}}'.encode(), key=key)
    except TrustError as error:
        raise VpcError(str(error)) from None


def open_map_untrusted(data: bytes, *, key: EllipticCurvePublicKey, now_s: float) -> MapDocument:
    """Return what a document says, if this key has signed it and it is neither expired nor of the future.

    `now_s`: the card's clock, since 1970. Raises VpcError with the reason.
    """
    try:
        content = verify1_untrusted(data, key=key, max_bytes=MAX_DOCUMENT_BYTES)
    except TrustError as error:
        raise VpcError(f"map: {error}") from None
    try:
        payload = _Payload.model_validate(_json_untrusted(content))
    except ValidationError as error:
        raise VpcError(f"map: {first_mistake(error, known_keys=_known_keys)}") from None
    document = MapDocument(
        map=payload.map,
        version=payload.version,
        issued_at_s=payload.issued_at_s,
        lifetime_s=payload.map.lifetime_s,
    )
    _check_time(document, now_s=now_s)
    return document


def _check_time(document: MapDocument, *, now_s: float) -> None:
    ahead_s = document.issued_at_s - now_s
    if ahead_s > MAX_AHEAD_S:
        raise VpcError(
            f"map: version {document.version} was issued {ahead_s:.0f} s in the future; a clock is wrong: "
            "compare the control plane's and this card's"
        )
    if now_s > document.expires_at_s:
        raise VpcError(
            f"map: version {document.version} expired {now_s - document.expires_at_s:.0f} s ago (lifetime "
            f"{document.lifetime_s:g} s); it is an old one, or a clock is wrong"
        )


def _json_untrusted(content: bytes) -> dict[str, Any]:
    """Return the object that a payload is, strictly: UTF-8, no key twice, no NaN. Raises VpcError."""
    try:
        payload = json.loads(content.decode(), object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise VpcError(f"map: the payload is not JSON: {error!s:.200}") from None
    if not isinstance(payload, dict):
        raise VpcError("map: the payload is no JSON object")
    return payload


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key is given twice")
    return made


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _known_keys(position: Position) -> list[str]:
    return list(_Payload.model_fields if not position else known_keys(position[1:]))
