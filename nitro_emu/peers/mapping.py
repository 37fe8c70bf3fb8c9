"""The mapping that a card has from its control plane: the newest one, while it lives.

The card opens no connection: the control plane pushes. A document counts if its signature is the control plane's, if it
was issued now by the card's clock, and if its version is newer than the last one. Its lifetime runs by the monotonic
clock from then on, so that a clock that is set does not shorten or lengthen it. After it, what is open goes on, and
nothing new is allowed.

The highest version that counted is in a file, so that a card which starts anew does not take an older mapping that
still lives. It takes that version itself again, which may be the newest that there is.

Whoever has seen a document may send it again, as often as the control socket lets him. The last ones that were taken or
refused are known by their hashes, and refused without being looked at.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from hashlib import sha384
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from netns.base.files import write_whole
from nitro_emu.errors import VpcError
from nitro_emu.trust.alarms import Alarms
from nitro_emu.vpc.document import MapDocument, StaleMapError, UntimelyMapError, open_map_untrusted
from nitro_emu.vpc.rules import Mapping

MAX_SEEN: Final = 8
"""Documents that are known by their hashes."""

MAX_VERSION: Final = (1 << 63) - 1
"""Of a document."""

_log: Final = logging.getLogger(__name__)


class VpcNetwork:
    """What one card knows of all VPCs. Its methods are called in the event loop's thread."""

    def __init__(
        self,
        card: str,
        *,
        control_plane: EllipticCurvePublicKey,
        alarms: Alarms,
        version_file: Path | None = None,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the settings, and read the version that counted before.

        `card`: this card's name in the mapping; `control_plane`: whose signature counts; `version_file`: where the
        highest version is kept, None: nowhere; the clocks in seconds. A file that cannot be read raises the alarm
        `map-version`, and counts as none.
        """
        self.card = card
        self._control_plane = control_plane
        self._alarms = alarms
        self._wall_clock = wall_clock
        self._clock = clock
        self._mapping: Mapping | None = None
        self._document: MapDocument | None = None  # that it is from
        self._expires_at = 0.0
        self._is_expiry_noticed = False
        self._callbacks: list[Callable[[], None]] = []
        self._seen: dict[bytes, int | str] = {}  # by hash: the version if it is no newer one, or what is wrong with it
        self._version_file = version_file
        self._version_before = 0  # that counted when this card ran before; 0: none is known
        if version_file is not None:
            try:
                self._version_before = _read_version(version_file)
            except VpcError as error:
                alarms.raise_alarm("map-version", str(error))

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have `callback` called after each new mapping, not when one is renewed that has not changed."""
        self._callbacks.append(callback)

    def set_map_untrusted(self, document: bytes) -> dict[str, Any]:
        """Take a signed mapping, and return what counts from now on. Raises VpcError with the reason."""
        digest = sha384(document).digest()
        try:
            found = self._open_untrusted(document, digest=digest)
        except UntimelyMapError:  # not for ever: a clock may be set
            raise
        except StaleMapError as error:
            self._remember(digest, error.version)
            reason = self._stale(error.version)
            self._alarms.raise_alarm("stale-map", reason)
            raise VpcError(reason) from None
        except VpcError as error:
            self._remember(digest, str(error))
            raise
        self._remember(digest, found.version)
        self._take(found)
        return self.status()

    def check_expiry(self) -> None:
        """Raise the alarm `map-expired`, once, when the mapping's lifetime is over. To be called each second or so."""
        if self._mapping is None or self._is_expiry_noticed or self._clock() < self._expires_at:
            return
        self._is_expiry_noticed = True
        self._alarms.raise_alarm("map-expired", _expired(self._mapping))

    def mapping(self) -> Mapping:
        """Return the mapping. Raises VpcError while there is none that is valid."""
        if self._mapping is None:
            raise VpcError("no mapping yet: the control plane has not pushed one")
        if self._clock() >= self._expires_at:
            self.check_expiry()
            raise VpcError(_expired(self._mapping))
        return self._mapping

    @property
    def version(self) -> int:
        """Of the mapping, valid or not; 0: there was none yet."""
        return 0 if self._mapping is None else self._mapping.version

    @property
    def rules_version(self) -> int:
        """As `version`, but of the first one with the same content."""
        return 0 if self._mapping is None else self._mapping.rules_version

    @property
    def card_addresses(self) -> frozenset[str]:
        """The addresses of all cards, valid or not: what this card may send to."""
        return frozenset() if self._mapping is None else frozenset(c.address for c in self._mapping.cards.values())

    def __contains__(self, public_key: object) -> bool:
        """Whether a card in the mapping has this key. Others may not open a peer; they raise an alarm."""
        if self._mapping is None:
            return False
        if public_key in self._mapping.card_keys:
            return True
        self._alarms.raise_alarm("unknown-card", "a handshake with the key of no card in the mapping")
        return False

    def status(self) -> dict[str, Any]:
        """Return version, remaining lifetime, and whether there was one that is over."""
        if self._mapping is None:
            return {"version": None, "expires_in_s": 0.0, "expired": False}
        remaining_s = self._expires_at - self._clock()
        return {
            "version": self._mapping.version,
            "expires_in_s": max(round(remaining_s, 3), 0.0),
            "expired": remaining_s <= 0,
        }

    def _open_untrusted(self, document: bytes, *, digest: bytes) -> MapDocument:
        """Return what a document says. Raises VpcError, at once if it is known."""
        newer_than = max(self._version_before - 1, 0) if self._mapping is None else self._mapping.version
        seen = self._seen.get(digest)
        if isinstance(seen, int):
            raise StaleMapError(seen, newer_than=newer_than)
        if seen is not None:
            raise VpcError(seen)
        now_s = self._wall_clock()
        return open_map_untrusted(
            document, key=self._control_plane, now_s=now_s, newer_than=newer_than, before=self._document
        )

    def _remember(self, digest: bytes, found: int | str) -> None:
        """Know a document from now on; forget the one that was not sent for longest."""
        self._seen.pop(digest, None)
        self._seen[digest] = found
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]

    def _take(self, found: MapDocument) -> None:
        """Go by a mapping from now on. If its version cannot be kept, that is an alarm: the old mapping allows more."""
        if self._version_file is not None:
            try:
                _write_version(self._version_file, version=found.version)
            except VpcError as error:
                self._alarms.raise_alarm("map-version", str(error))
        is_renewed = self._document is not None and found.map is self._document.map
        self._document = found
        if is_renewed and self._mapping is not None:
            self._mapping.version = found.version
        else:
            self._mapping = Mapping(found.map, version=found.version)
        self._expires_at = self._clock() + max(found.expires_at_s - self._wall_clock(), 0.0)
        self._is_expiry_noticed = False
        _log.debug("mapping %d, for %s s", found.version, found.lifetime_s)
        for callback in () if is_renewed else self._callbacks:
            callback()

    def _stale(self, version: int) -> str:
        if self._mapping is not None:
            return f"version: {version} is not newer than {self._mapping.version}, which this card has"
        return (
            f"version: {version} is older than {self._version_before}, which this card had before it was started anew; "
            f"{self._version_file} has that version"
        )


def _expired(mapping: Mapping) -> str:
    return f"mapping {mapping.version} has expired: the control plane pushes no newer one"


def _read_version(path: Path) -> int:
    """Return the version in a file; 0 if there is no file. Raises VpcError."""
    remedy = "an older mapping that still lives will be taken, unless the control plane has pushed a newer one before"
    try:
        with path.open("rb") as file:
            content = file.read(len(str(MAX_VERSION)) + 2)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise VpcError(f"{path}: cannot be read: {error.strerror}; {remedy}") from None
    digits = content.removesuffix(b"\n")
    if not digits.isdigit() or not 0 < (version := int(digits)) <= MAX_VERSION:
        raise VpcError(f"{path}: {content!r} is no version of a mapping; {remedy}")
    return version


def _write_version(path: Path, *, version: int) -> None:
    """Replace a file by one with this version, for the card's user alone. Raises VpcError.

    It is not synchronised, which may take long: after a loss of power there may be an older version in it, or none.
    """
    try:
        write_whole(path, b"%d\n" % version, mode=0o600)
    except OSError as error:
        raise VpcError(f"{path}: version {version} cannot be kept: {error.strerror}; make it writable") from None
