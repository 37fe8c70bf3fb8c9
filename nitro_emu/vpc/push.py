"""How a document goes to a card: a line with JSON to its control socket, or the same over TCP.

    {"command": "map", "document": "BASE64"}       {"ok": {...}}  or  {"error": "map: version 7 expired 3 s ago ..."}

The document is signed, so nothing here needs to be secret or authentic for the card to be safe from a forged map.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from netns.base.addresses import parse_host_port

PUSH_TIMEOUT_S: Final = 5.0
"""How long a card may take to accept a connection, read a document and answer."""

MAX_REPLY_BYTES: Final = 64 << 10
MAX_REASON: Final = 500
"""Characters of a card's reason that are kept."""


class PushState(StrEnum):
    """What became of a push."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """The card has answered, and says why not."""
    UNREACHABLE = "unreachable"
    """The card has not answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOutcome:
    """What became of one push to one card."""

    state: PushState
    version: int
    """Of the document that was sent; 0: none was, as nobody took the connection."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signed:
    """A document and the version in it."""

    version: int
    document: bytes


class CardLink:
    """The way to one card. Its last connection stays open after a push, so that it shows when the card has gone."""

    def __init__(self, address: str, *, timeout_s: float = PUSH_TIMEOUT_S) -> None:
        """`address`: see `nitro_emu.vpc.fields.Push`; `timeout_s`: of a push."""
        self._address = address
        self._timeout_s = timeout_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def push(self, signed: Callable[[], Signed]) -> PushOutcome:
        """Send a document; return what became of it.

        `signed` is called when the card has accepted the connection, so that a card which is not there costs no
        signature.
        """
        self.close()
        sent: Signed | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                reader, writer = self._streams = await _connect(self._address)
                sent = signed()
                writer.write(_request(sent.document))
                await writer.drain()
                return _outcome_untrusted(await reader.readline(), version=sent.version)
        except TimeoutError:
            reason = f"no answer within {self._timeout_s:g} s"
        except UnicodeError as error:  # of the resolver; a ValueError
            reason = f"{self._address} names no host ({error}); change push: of the card"
        except ValueError:
            reason = f"what answers there is no card: a reply has more than {MAX_REPLY_BYTES} bytes"
        except OSError as error:
            reason = _reason(error)
        self.close()
        return PushOutcome(state=PushState.UNREACHABLE, version=sent.version if sent else 0, reason=reason)

    async def lost(self) -> None:
        """Return when the connection of the last push has ended."""
        if self._streams is None:
            return
        try:
            await self._streams[0].read(1)  # a card says nothing without a request
        except OSError:
            return

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _request(document: bytes) -> bytes:
    return json.dumps({"command": "map", "document": base64.b64encode(document).decode()}).encode() + b"\n"


async def _connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.startswith("/"):
        return await asyncio.open_unix_connection(address, limit=MAX_REPLY_BYTES)
    return await asyncio.open_connection(*parse_host_port(address, example_port=7471), limit=MAX_REPLY_BYTES)


def _reason(error: OSError) -> str:
    """Return an error without the address that asyncio puts into its texts."""
    number = error.errno or 0
    text = os.strerror(number) if number in errno.errorcode else str(error)
    return f"no card answers there ({text})"


def _outcome_untrusted(line: bytes, *, version: int) -> PushOutcome:
    if not line.endswith(b"\n"):
        reason = "the card has closed the connection without an answer"
        return PushOutcome(state=PushState.UNREACHABLE, version=version, reason=reason)
    reply: Any
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):
        reply = None
    if isinstance(reply, dict) and isinstance(reply.get("ok"), dict):
        return PushOutcome(state=PushState.ACCEPTED, version=version)
    error = reply.get("error") if isinstance(reply, dict) else None
    reason = error if isinstance(error, str) else "what answers there is no card"
    return PushOutcome(state=PushState.REFUSED, version=version, reason=reason[:MAX_REASON])
