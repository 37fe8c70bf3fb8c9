"""Which client may ask what, and the packets that answer it; without sockets.

One client at a time has the card: the one whose Boot succeeded, until its connection ends. Others get the status.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from nitro_emu.chip.chip import BootState, CardFiles, Chip
from nitro_emu.chip.messages import (
    MAX_REQUEST_BYTES,
    MAX_RESPONSE_BYTES,
    ChipMessage,
    decode_untrusted,
    encode,
    one_line,
)
from nitro_emu.chip.nsm import Code, NsmError
from nitro_emu.errors import TrustError

MAX_PATH: Final = 4096
"""Characters; Linux' PATH_MAX."""

ALWAYS: Final = frozenset({"Boot", "Status"})
"""Requests that are answered whoever asks."""

OF_THE_CARD: Final = frozenset({"Attestation", "CheckUpdate"})
"""Requests of a card that runs."""

_PATHS: Final = ("image_root", "manifest", "configuration")
_log: Final = logging.getLogger(__name__)

Packet = bytes | bytearray
"""A bytearray is a secret, which whoever sends it wipes."""


class ChipUser(Protocol):
    """One connection, as far as the service knows it."""

    def has_ended(self) -> bool:
        """Whether the other end has closed the connection."""


class Service:
    """Answers the requests of several clients."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._card: ChipUser | None = None

    def end(self, client: ChipUser) -> None:
        """A client's connection has ended; the chip is reset if the client had the card."""
        if client is self._card:
            self._card = None
            self._chip.reset()
            _log.info("the card has ended")

    def answer_untrusted(self, packet: bytes, *, client: ChipUser) -> Sequence[Packet]:
        """Return the packets that answer a request, whatever it is."""
        if len(packet) > MAX_REQUEST_BYTES:
            return [_error(0, Code.INPUT_TOO_LARGE)]
        try:
            request = decode_untrusted(packet, name="the request", max_bytes=MAX_REQUEST_BYTES)
        except TrustError as error:
            _log.debug("%s", error)
            return [_error(0, Code.INVALID_ARGUMENT)]
        try:
            answer = self._answer(request, client=client)
        except NsmError as error:
            answer = [_error(request.number, error.code)]
        except TrustError as error:
            answer = [encode(request.number, "Refused", one_line(str(error)))]
        except Exception as error:  # noqa: BLE001 - the chip goes on, whatever a request brings up
            _log.error("internal error", exc_info=error)
            answer = [_error(request.number, Code.INTERNAL_ERROR)]
        if len(answer[0]) > MAX_RESPONSE_BYTES:
            return [_error(request.number, Code.BUFFER_TOO_SMALL)]
        return answer

    def _answer(self, request: ChipMessage, *, client: ChipUser) -> list[Packet]:
        is_card = client is self._card and self._chip.state is BootState.RUN
        if request.name not in (ALWAYS | OF_THE_CARD if is_card else ALWAYS):
            raise NsmError(Code.INVALID_OPERATION)
        if request.text:
            raise NsmError(Code.INVALID_ARGUMENT)
        if request.name == "Boot":
            return self._boot(request, client=client)
        return [encode(request.number, request.name, self._fields(request))]

    def _fields(self, request: ChipMessage) -> Mapping[str, Any] | None:
        if request.name == "Status":
            _only(request)
            return self._chip.status()
        if request.name == "CheckUpdate":
            return {"version": self._chip.check_update(_files_untrusted(request))}
        return self._chip.nsm.attest_untrusted(request.fields)

    def _boot(self, request: ChipMessage, *, client: ChipUser) -> list[Packet]:
        files = _files_untrusted(request)
        if self._card not in {None, client}:
            self._free_card()
        self._card = None
        secret = self._chip.boot(files)
        chip = self._chip
        if secret is None:
            return [encode(request.number, "Boot", {"reason": chip.reason})]
        self._card = client
        events = [asdict(event) for event in chip.events]
        fields = {"reason": None, "version": chip.version, "pcrs": chip.pcrs, "events": events}
        return [encode(request.number, "Boot", fields), secret]

    def _free_card(self) -> None:
        """Reset the chip if its card has ended. Raises TrustError if it has not."""
        if self._card is not None:
            if not self._card.has_ended():
                raise TrustError("a card runs on this chip already; stop it, or make another chip with nitro-chip init")
            self.end(self._card)


def _error(number: int, code: Code) -> bytes:
    return encode(number, "Error", code.value)


def _only(request: ChipMessage, *known: str) -> None:
    if request.fields.keys() - set(known):
        raise NsmError(Code.INVALID_ARGUMENT)


def _files_untrusted(request: ChipMessage) -> CardFiles:
    """Return the paths of a request. Raises NsmError if they are not absolute, or none."""
    _only(request, *_PATHS)
    for name in _PATHS:
        path = request.fields.get(name)
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path or len(path) > MAX_PATH:
            raise NsmError(Code.INVALID_ARGUMENT)
    return CardFiles(**{name: Path(request.fields[name]) for name in _PATHS})
