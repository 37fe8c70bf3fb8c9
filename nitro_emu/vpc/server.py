"""The control plane: reads the map's file, and keeps every card supplied with signed documents of it.

Theory of operation. One task watches the file, by its status every `WATCH_S` and at `reload`. A file that has changed
is read when it has been the same for one such time, so that one which an editor is still writing is not taken for its
first half. One that is broken is logged; the last good map goes on.

One task a card pushes: at once when the map has changed; every third of the lifetime, so that a card has two more
tries before its map expires; every `RETRY_S` to a card that is not there, or whose connection has ended, as when it is
started anew; and to one that refuses, after 1 s, 2 s, 4 s and so on up to `MAX_RETRY_S`, until it has taken that map.
What becomes of pushes is reported once per change. A card that an edit removes gets the new map, too, so that it
withdraws what the old one allowed: until it has taken it, or its old map has expired.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from netns.base.tasks import first_ended
from nitro_emu.errors import VpcError
from nitro_emu.vpc.document import sign_map
from nitro_emu.vpc.model import VpcMap, parse, read
from nitro_emu.vpc.push import PUSH_TIMEOUT_S, CardLink, PushOutcome, PushState, Signed

WATCH_S: Final = 0.1
"""How often the file's status is read. A change is pushed within two of these: well within a second."""

RETRY_S: Final = 1.0
"""How long after a card did not answer it is tried again; and after it has refused a map for the first time."""

MAX_RETRY_S: Final = 30.0
"""How long after a refusal it is tried again at most: a clock that was set right counts soon."""

PUSHES_PER_LIFETIME: Final = 3

Status = tuple[int, int, int, int]
"""What changes with a file's content: by a write, or by another file in its place."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """What became of pushes to a card, when that has changed."""

    card: str
    address: str
    edition: int
    """Of the map: 1 is the file as it was at the start, each reload adds one."""
    outcome: PushOutcome


class Signer:
    """Makes documents, each with a version greater than the last: milliseconds since 1970, also after a restart."""

    def __init__(self, key: EllipticCurvePrivateKey, *, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock
        self._version = 0

    def sign(self, vpc_map: VpcMap) -> Signed:
        """Return a new document, issued now. Raises VpcError for a map that is too large."""
        now_s = self._clock()
        self._version = max(self._version + 1, int(now_s * 1000))
        document = sign_map(vpc_map, version=self._version, issued_at_s=now_s, key=self._key)
        return Signed(version=self._version, document=document)


async def push_once(vpc_map: VpcMap, *, signer: Signer, timeout_s: float = PUSH_TIMEOUT_S) -> list[PushReport]:
    """Push one document to every card at the same time; return what became of it. Raises VpcError (too large)."""
    signed = signer.sign(vpc_map)

    async def to_card(name: str, address: str) -> PushReport:
        link = CardLink(address, timeout_s=timeout_s)
        outcome = await link.push(lambda: signed)
        link.close()
        return PushReport(card=name, address=address, edition=1, outcome=outcome)

    return await asyncio.gather(*(to_card(name, card.push) for name, card in vpc_map.cards.items()))


class _Supply:
    """The map as it is now, as documents."""

    def __init__(self, vpc_map: VpcMap, *, signer: Signer) -> None:
        self._signer = signer
        self.map = vpc_map
        self.edition = 1
        self._signed = signer.sign(vpc_map)

    def replace(self, vpc_map: VpcMap) -> None:
        """Go on with another map. Raises VpcError if it is too large, and goes on with the last one."""
        self._signed = self._signer.sign(vpc_map)
        self.map = vpc_map
        self.edition += 1

    def renew(self) -> None:
        """Make a new document of the same map."""
        self._signed = self._signer.sign(self.map)

    def after(self, version: int) -> Signed:
        """Return a document that is newer than the last one sent: the same to all cards, unless one gets it again."""
        if self._signed.version <= version:
            self.renew()
        return self._signed


class _Pusher:
    """Supplies one card. `retire` lets it end."""

    def __init__(
        self, card: str, address: str, *, supply: _Supply, report: Callable[[PushReport], None], timeout_s: float
    ) -> None:
        self._card = card
        self._address = address
        self._supply = supply
        self._report = report
        self._link = CardLink(address, timeout_s=timeout_s)
        self._due = asyncio.Event()
        self._reported: tuple[int, PushState, str] | None = None
        self._edition = 0  # of the last map sent, or tried to
        self._version = 0  # of the last document sent
        self._refused = (0, 0)  # an edition, and how often in a row the card has refused it
        self._lifetime_s = 0.0  # that document's
        self._ends_at: float | None = None  # by the loop's clock, if it is retired

    def wake(self, card: str) -> None:
        """Push what is there now to the card, which has this name now; go on, also if this was retired."""
        self._card = card
        self._ends_at = None
        self._due.set()

    def retire(self) -> None:
        """Push once more, and end when the card has answered, or when the map has expired that it has."""
        if self._ends_at is None:
            self._ends_at = asyncio.get_running_loop().time() + self._lifetime_s
            self._due.set()

    async def run(self) -> None:
        """Push until the card needs no more."""
        try:
            while True:
                self._due.clear()
                outcome = await self._push()
                if not self._due.is_set():
                    if self._is_over(outcome):
                        return
                    await self._wait(outcome)
        finally:
            self._link.close()

    def _is_over(self, outcome: PushOutcome) -> bool:
        if self._ends_at is None:
            return False
        return outcome.state is PushState.ACCEPTED or asyncio.get_running_loop().time() >= self._ends_at

    async def _wait(self, outcome: PushOutcome) -> None:
        """Wait until the next push is due: there is a new document, or the card did not take it, or is no longer."""
        retry_s = RETRY_S
        if outcome.state is PushState.REFUSED:
            retry_s = retry_after_s(self._refused[1])
        elif outcome.state is PushState.ACCEPTED and await first_ended(self._due.wait(), self._link.lost()) == 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(retry_s):
                await self._due.wait()

    async def _push(self) -> PushOutcome:
        self._edition = self._supply.edition
        outcome = await self._link.push(self._next)
        edition, times = self._refused
        before = times if edition == self._edition else 0
        self._refused = self._edition, before + 1 if outcome.state is PushState.REFUSED else 0
        news = self._edition, outcome.state, re.sub(r"[0-9]+", "#", outcome.reason)  # not each second of a wrong clock
        if news != self._reported:
            self._reported = news
            self._report(PushReport(card=self._card, address=self._address, edition=self._edition, outcome=outcome))
        return outcome

    def _next(self) -> Signed:
        signed = self._supply.after(self._version)
        self._edition = self._supply.edition
        self._version = signed.version
        self._lifetime_s = self._supply.map.lifetime_s
        return signed


def retry_after_s(refusals: int) -> float:
    """Return how long after a push that failed the next is due: longer the more often the card has refused the map."""
    doublings = min(max(refusals - 1, 0), 16)  # a float has an end
    return min(RETRY_S * (1 << doublings), MAX_RETRY_S)


class ControlPlane:
    """Serves the map in a file to its cards, on the running event loop."""

    def __init__(
        self,
        path: Path,
        *,
        signer: Signer,
        report: Callable[[PushReport], None],
        watch_s: float = WATCH_S,
        timeout_s: float = PUSH_TIMEOUT_S,
    ) -> None:
        """Read the file. Raises VpcError if it is broken; later, that is logged. `report` gets what has changed."""
        self._path = path
        self._report = report
        self._watch_s = watch_s
        self._timeout_s = timeout_s
        self._status = look(path)  # of what was read last, or before
        self._content = read(path)
        self._supply = _Supply(parse(self._content, name=str(path)), signer=signer)
        self._complaint = ""
        self._asked = asyncio.Event()
        self._changed = asyncio.Event()
        self._pushers: dict[str, tuple[_Pusher, asyncio.Task[None]]] = {}  # by address

    @property
    def map(self) -> VpcMap:
        """The map that cards get: the last good one."""
        return self._supply.map

    def reload(self) -> None:
        """Read the file now, and push what it says, also if it has not changed (SIGHUP)."""
        self._asked.set()

    async def run(self) -> None:
        """Supply the cards until this is cancelled."""
        async with asyncio.TaskGroup() as group:
            self._supply_cards(group)
            group.create_task(self._watch())
            group.create_task(self._renew(group))

    # -- the file -----------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Read the file when somebody has asked for that, or when it has changed, and is the same at two looks."""
        last = self._status
        while True:
            asked = await self._is_asked()
            status = look(self._path)
            if asked or status == last != self._status:
                self._status = status
                await self._load(asked=asked)
            last = status

    async def _is_asked(self) -> bool:
        """Wait until it is time to look at the file; return whether somebody asked for that."""
        try:
            async with asyncio.timeout(self._watch_s):
                await self._asked.wait()
        except TimeoutError:
            return False
        self._asked.clear()
        return True

    async def _load(self, *, asked: bool) -> None:
        try:
            content = await asyncio.to_thread(read, self._path)
            if content != self._content or asked:
                self._supply.replace(await asyncio.to_thread(parse, content, name=str(self._path)))
                self._content = content
                self._changed.set()
                _log.info("%s: edition %d of the map", self._path, self._supply.edition)
            elif self._complaint:
                _log.info("%s: is again what it was; edition %d of the map", self._path, self._supply.edition)
            self._complaint = ""
        except VpcError as error:
            self._complain(str(error), again=asked)

    def _complain(self, text: str, *, again: bool = False) -> None:
        if text != self._complaint or again:
            self._complaint = text
            _log.error("%s; the cards go on with edition %d of the map", text, self._supply.edition)

    # -- the cards ----------------------------------------------------------------------------------------------

    async def _renew(self, group: asyncio.TaskGroup) -> None:
        """Supply the cards when the map has changed, and before it expires."""
        while True:
            try:
                async with asyncio.timeout(self.map.lifetime_s / PUSHES_PER_LIFETIME):
                    await self._changed.wait()
            except TimeoutError:
                self._supply.renew()
            self._changed.clear()
            self._supply_cards(group)

    def _supply_cards(self, group: asyncio.TaskGroup) -> None:
        """Wake the cards' pushers, make those of new cards, and retire those of cards that are no longer there."""
        self._pushers = {address: each for address, each in self._pushers.items() if not each[1].done()}
        wanted = {card.push: name for name, card in self.map.cards.items()}
        for address, name in wanted.items():
            if address in self._pushers:
                self._pushers[address][0].wake(name)
                continue
            pusher = _Pusher(name, address, supply=self._supply, report=self._report, timeout_s=self._timeout_s)
            self._pushers[address] = pusher, group.create_task(pusher.run())
        for address in self._pushers.keys() - wanted.keys():
            self._pushers[address][0].retire()


def look(path: Path) -> Status | None:
    """Return a file's status; None if it cannot be had."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
