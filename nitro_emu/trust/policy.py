"""Who may ask a card for what: a table of principals and calls.

    principal = principal_of(uid, card_uid=os.geteuid(), vf_uids=frozenset({1000, 1001}))
    is_allowed(principal, call="map")

The table is all there is: a call that is not in it does not exist, and none of those that are in it reads a tenant's
memory or a key. So nobody can be given such a right, neither by mistake nor by order.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final


class Principal(enum.StrEnum):
    """Who asks, as the kernel or a signature proves it."""

    ROOT = "root"
    """The administrator of the host: uid 0."""

    CARD_USER = "card-user"
    """The user that the card runs as."""

    TENANT = "tenant"
    """A user to whom a virtual function belongs."""

    CONTROL_PLANE = "control-plane"
    """Whoever connects over TCP: nobody is known there, so only what a document's signature proves counts."""

    UNKNOWN = "unknown"
    """Any other user of the host."""


class Call(enum.StrEnum):
    """What a card can be asked for."""

    ATTEST = "attest"
    """A document that proves what the card runs."""

    AUDIT = "audit"
    """Where the audit log is, and the hash of its last record."""

    LOGS = "logs"
    """The last records of the log."""

    MAP = "map"
    """A new mapping of the control plane, signed by it."""

    STATS = "stats"
    """Counters."""

    STATUS = "status"
    """The state of the card and its virtual functions."""

    UPDATE = "update"
    """To go on with new software, signed by the vendor."""


CHANGES: Final = frozenset({Call.MAP, Call.UPDATE})
"""The calls that change the card; the others only read."""

POLICY: Final[Mapping[Principal, frozenset[Call]]] = MappingProxyType(
    {
        Principal.ROOT: frozenset(Call),
        Principal.CARD_USER: frozenset(Call),
        Principal.TENANT: frozenset({Call.ATTEST}),
        Principal.CONTROL_PLANE: frozenset({Call.MAP}),
        Principal.UNKNOWN: frozenset(),
    }
)
"""What each principal may ask for. The author of a mapping or of new software is proved by its signature besides."""


def principal_of(uid: int, *, card_uid: int, vf_uids: AbstractSet[int]) -> Principal:
    """Return who a local user is. The first that fits counts: root, the card's user, a tenant."""
    if uid == 0:
        return Principal.ROOT
    if uid == card_uid:
        return Principal.CARD_USER
    return Principal.TENANT if uid in vf_uids else Principal.UNKNOWN


def is_allowed(principal: Principal, *, call: str) -> bool:
    """Return whether the table lets `principal` make a call. A name that is no call is never allowed."""
    return call in POLICY[principal]
