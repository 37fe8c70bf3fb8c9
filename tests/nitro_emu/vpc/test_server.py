"""nitro_emu.vpc.server: every card has the map, soon after each change, and before it expires."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

from netns.base.files import write_whole
from nitro_emu.vpc import server
from nitro_emu.vpc.push import PushState
from nitro_emu.vpc.server import ControlPlane, PushReport, Signer, Status, look, push_once
from tests.nitro_emu.vpc.fake_card import Answer, FakeCard, ok
from tests.nitro_emu.vpc.maps import card, map_of, two_vpcs
from tests.patience import PATIENCE_S

KEY = generate_private_key(SECP384R1())
START_S = 1000.0
"""Of the clocks. The control plane's goes on by 1 ms each time it is read, the cards' do not: no document expires."""
LONG_S = 3600.0
SOON_S = 0.02

Content = dict[str, Any]


def make_signer() -> Signer:
    return Signer(KEY, clock=itertools.count(START_S, 0.001).__next__)


class Plane:
    """A control plane of a file that tests edit, and what it reports."""

    def __init__(self, directory: Path, *, lifetime_s: float = LONG_S) -> None:
        self.path = directory / "vpc.yaml"
        self.reports: asyncio.Queue[PushReport] = asyncio.Queue()
        self.content = two_vpcs()
        self.content["lifetime_s"] = lifetime_s
        for name in ("card-1", "card-2"):
            self.content["cards"][name]["push"] = str(directory / name)
        self.write()

    def write(self) -> None:
        self.write_text(yaml.safe_dump(self.content))

    def write_text(self, text: str) -> None:
        """Replace the file in one step, as editors do: a look between opening and writing would find it empty."""
        write_whole(self.path, text.encode())

    def card(self, name: str, *, answer: Answer = ok, closes: bool = False) -> FakeCard:
        return FakeCard(
            self.content["cards"][name]["push"], key=KEY.public_key(), answer=answer, closes=closes, now=lambda: START_S
        )

    @asynccontextmanager
    async def run(self, *, signer: Signer | None = None) -> AsyncIterator[ControlPlane]:
        plane = ControlPlane(
            self.path,
            signer=signer or make_signer(),
            report=self.reports.put_nowait,
            watch_s=SOON_S,
            timeout_s=PATIENCE_S,
        )
        task = asyncio.create_task(plane.run())
        try:
            yield plane
        finally:
            assert not task.done()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def report(self, card: str) -> PushReport:
        """Return the next report of a card; skip other cards'."""
        async with asyncio.timeout(PATIENCE_S):
            while (found := await self.reports.get()).card != card:
                pass
        return found


@pytest.fixture
def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plane:
    monkeypatch.setattr(server, "RETRY_S", SOON_S)
    return Plane(tmp_path)


class Log(logging.Handler):
    """What the control plane logs."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self._records: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())
        self._records.put_nowait(record.getMessage())

    async def next(self, wanted: str) -> str:
        """Return the next record that contains this text."""
        async with asyncio.timeout(PATIENCE_S):
            while wanted not in (found := await self._records.get()):
                pass
        return found


@pytest.fixture
def log() -> Iterator[Log]:
    handler, logger = Log(), logging.getLogger("nitro_emu.vpc")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


# -- documents --------------------------------------------------------------------------------------------------


def test_versions_grow_whatever_the_clock_does() -> None:
    times = iter([1000.0, 1000.0, 1000.0004, 500.0, 2000.5])
    signer = Signer(KEY, clock=lambda: next(times))
    versions = [signer.sign(map_of({})).version for _ in range(5)]
    assert versions == [1_000_000, 1_000_001, 1_000_002, 1_000_003, 2_000_500]


# -- pushes -----------------------------------------------------------------------------------------------------


async def test_cards_get_the_map_at_the_start(plane: Plane) -> None:
    async with plane.card("card-1") as one, plane.card("card-2") as two, plane.run():
        documents = [await one.next(), await two.next()]
        assert [document.map for document in documents] == [map_of(plane.content)] * 2
        assert documents[0].version == documents[1].version
        reports = {(report := await plane.reports.get()).card: report for _ in range(2)}
        assert {report.outcome.state for report in reports.values()} == {PushState.ACCEPTED}
        assert reports["card-2"].edition == 1


async def test_card_that_hangs_does_not_delay_another(plane: Plane) -> None:
    async with plane.card("card-1", answer=lambda _: None) as one, plane.card("card-2") as two, plane.run():
        await one.next()
        await two.next()
        assert (await plane.report("card-2")).outcome.state is PushState.ACCEPTED


async def test_map_is_renewed_before_it_expires(plane: Plane) -> None:
    plane.content["lifetime_s"] = 0.3
    plane.write()
    async with plane.card("card-1") as one, plane.run():
        documents = [await one.next() for _ in range(4)]
        versions = [document.version for document in documents]
        assert versions == sorted(set(versions))
        issued = [document.issued_at_s for document in documents]
        assert issued == sorted(set(issued))
        assert (await plane.report("card-1")).outcome.state is PushState.ACCEPTED
    reports = [plane.reports.get_nowait() for _ in range(plane.reports.qsize())]
    assert [report for report in reports if report.card == "card-1"] == []  # nothing has changed


async def test_card_that_is_not_there_is_tried_again(plane: Plane) -> None:
    async with plane.run():
        report = await plane.report("card-1")
        assert report.outcome.state is PushState.UNREACHABLE
        assert "No such file or directory" in report.outcome.reason
        async with plane.card("card-1") as one:
            await one.next()
            assert (await plane.report("card-1")).outcome.state is PushState.ACCEPTED


async def test_card_that_comes_late_gets_a_document_that_is_not_old(plane: Plane) -> None:
    plane.content["lifetime_s"] = 0.3
    plane.write()
    renewed = asyncio.Event()
    count = itertools.count()

    def clock() -> float:
        if (number := next(count)) == 4:
            renewed.set()
        return START_S + number / 1000

    async with plane.run(signer=Signer(KEY, clock=clock)):
        async with asyncio.timeout(PATIENCE_S):
            await renewed.wait()
        async with plane.card("card-1") as one:
            assert (await one.next()).issued_at_s >= START_S + 0.004


async def test_card_that_starts_anew_gets_the_map(plane: Plane) -> None:
    async with plane.run():
        first = await served(plane)
        second = await served(plane)
        assert second > first  # a card that kept the first would refuse it a second time


async def served(plane: Plane) -> int:
    """Be card-1 until it has the map and the control plane has said so; return the version."""
    async with plane.card("card-1") as one:
        version = (await one.next()).version
        while (await plane.report("card-1")).outcome.state is not PushState.ACCEPTED:
            pass
    assert (await plane.report("card-1")).outcome.state is PushState.UNREACHABLE
    return version


async def test_refusal_is_reported_once_whatever_its_numbers(plane: Plane) -> None:
    plane.content["lifetime_s"] = 0.3
    plane.write()
    count = itertools.count(1)

    def refuse(_: object) -> bytes:
        return f'{{"error": "map: expired {next(count)} s ago"}}\n'.encode()

    async with plane.card("card-1", answer=refuse) as one, plane.run():
        for _ in range(3):
            await one.next()
        report = await plane.report("card-1")
        assert (report.outcome.state, report.outcome.reason) == (PushState.REFUSED, "map: expired 1 s ago")
        one.answer = ok
        assert (await plane.report("card-1")).outcome.state is PushState.ACCEPTED


async def test_refused_map_is_sent_again_until_the_card_takes_it(plane: Plane) -> None:
    """Long before a third of the lifetime: a clock was set right, or the card has heard what it missed."""
    async with plane.card("card-1", answer=lambda _: b'{"error": "map: a clock is wrong"}\n') as one, plane.run():
        versions = [(await one.next()).version for _ in range(4)]
        assert versions == sorted(set(versions))  # a card that keeps the last one would refuse it
        assert (await plane.report("card-1")).outcome.state is PushState.REFUSED
        one.answer = ok
        assert (await plane.report("card-1")).outcome.state is PushState.ACCEPTED


async def test_refused_map_is_sent_again_also_if_the_card_closes_each_connection(plane: Plane) -> None:
    async with plane.card("card-1", answer=lambda _: b'{"error": "no"}\n', closes=True) as one, plane.run():
        for _ in range(4):
            await one.next()


async def test_new_map_is_not_held_back_by_refusals(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "RETRY_S", LONG_S)
    monkeypatch.setattr(server, "MAX_RETRY_S", LONG_S)
    async with plane.card("card-1", answer=lambda _: b'{"error": "no"}\n') as one, plane.run():
        await one.next()
        withdraw(plane.content)
        plane.write()
        assert (await one.next()).map == map_of(plane.content)


async def test_refusals_are_counted_for_each_map(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def soon(refusals: int) -> float:
        counted.append(refusals)
        return SOON_S

    monkeypatch.setattr(server, "retry_after_s", soon)
    del plane.content["vpcs"]["green"], plane.content["vpcs"]["red"]["interfaces"]["red-2"]
    del plane.content["cards"]["card-2"]
    plane.write()
    async with plane.card("card-1", answer=lambda _: b'{"error": "no"}\n') as one, plane.run():
        for _ in range(4):
            await one.next()
        withdraw(plane.content)
        plane.write()
        while (await one.next()).map != map_of(plane.content):
            pass
        for _ in range(2):  # the first may come at once: a retry took the new map just before the edit was announced
            await one.next()
    assert counted[:3] == [1, 2, 3]
    assert any(after < before for before, after in itertools.pairwise(counted)), counted  # anew


def test_time_to_the_next_try_doubles_up_to_half_a_minute() -> None:
    times = [server.retry_after_s(refusals) for refusals in (0, 1, 2, 3, 4, 5, 6, 7, 100_000)]
    assert times == [1, 1, 2, 4, 8, 16, 30, 30, 30]


# -- edits ------------------------------------------------------------------------------------------------------


def withdraw(content: Content) -> None:
    content["vpcs"]["red"]["groups"]["efa"]["ingress"] = []


async def test_broken_edit_is_logged_once_and_the_last_map_goes_on(plane: Plane, log: Log) -> None:
    plane.content["lifetime_s"] = 0.3
    plane.write()
    async with plane.card("card-1") as one, plane.run() as running:
        first = await one.next()
        plane.content["vpcs"]["red"]["interfaces"]["red-2"]["address"] = "10.9.9.9"
        plane.write()
        error = await log.next("; the cards go on with edition 1 of the map")
        wanted = f"{plane.path}: vpcs.red.interfaces.red-2.address: 10.9.9.9 is not in subnet a (172.31.0.0/24); give"
        assert error.startswith(wanted)
        for _ in range(3):
            assert (await one.next()).map == first.map == running.map
        plane.content["vpcs"]["red"]["interfaces"]["red-2"]["address"] = "172.31.0.9"
        plane.write()
        while (await one.next()).map != map_of(plane.content):
            pass
    assert log.errors == [error]


async def test_file_that_goes_and_comes_back(plane: Plane, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: asyncio.Queue[None] = asyncio.Queue()

    def counting_look(path: Path) -> Status | None:
        looks.put_nowait(None)
        return look(path)

    monkeypatch.setattr(server, "look", counting_look)
    async with plane.card("card-1") as one, plane.run():
        await one.next()
        text = plane.path.read_text()
        for times in (1, 2):
            plane.path.unlink()
            await log.next("cannot be read: No such file or directory; name the control plane's YAML file")
            for _ in range(looks.qsize() + 3):
                await asyncio.wait_for(looks.get(), PATIENCE_S)
            plane.write_text(text)
            await log.next("is again what it was; edition 1 of the map")
            assert len(log.errors) == times  # each time once
        withdraw(plane.content)
        plane.write()
        assert (await one.next()).map == map_of(plane.content)


async def test_file_that_is_still_being_written_is_not_read(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look finds another status, until it has settled."""
    looks: asyncio.Queue[int] = asyncio.Queue()
    sizes, is_written = itertools.count(), False
    reads: list[Path] = []

    def growing(path: Path) -> Status | None:
        looks.put_nowait(size := 0 if is_written else next(sizes))
        return look(path) if is_written else (0, size, size, size)

    def counting_read(path: Path) -> bytes:
        reads.append(path)
        return path.read_bytes()

    async with plane.card("card-1") as one, plane.run():
        await one.next()
        monkeypatch.setattr(server, "look", growing)
        monkeypatch.setattr(server, "read", counting_read)
        withdraw(plane.content)
        plane.write()
        for _ in range(looks.qsize() + 10):
            await asyncio.wait_for(looks.get(), PATIENCE_S)
        assert not reads
        is_written = True
        assert (await one.next()).map == map_of(plane.content)
    assert reads == [plane.path]


async def test_reload_pushes_what_has_not_changed(plane: Plane) -> None:
    async with plane.card("card-1") as one, plane.run() as running:
        first = await one.next()
        running.reload()
        second = await one.next()
        assert (second.map, second.version > first.version) == (first.map, True)


async def test_card_that_an_edit_adds(plane: Plane) -> None:
    async with plane.card("card-1") as one, plane.card("card-2") as two, plane.run():
        await one.next()
        plane.content["cards"]["card-3"] = card(3, push=str(plane.path.with_name("card-3")))
        async with plane.card("card-3") as three:
            plane.write()
            assert (await three.next()).map.cards.keys() == {"card-1", "card-2", "card-3"}
        assert (await two.next()).map.cards.keys() == {"card-1", "card-2"}  # at the start


async def test_card_that_an_edit_removes_gets_the_map_without_it(plane: Plane) -> None:
    async with plane.card("card-1") as one, plane.card("card-2") as two, plane.run() as running:
        for each in (one, two):
            await each.next()
        removed = plane.content["cards"].pop("card-2")
        for vpc, name in (("red", "red-2"), ("green", "green-2")):
            del plane.content["vpcs"][vpc]["interfaces"][name]
        plane.write()
        assert (await two.next()).map.cards.keys() == {"card-1"}
        while (await one.next()).map.cards.keys() != {"card-1"}:
            pass
        running.reload()
        await one.next()
        assert two.documents.empty()  # it is no longer supplied
        plane.content["cards"]["again"] = removed
        plane.write()
        assert (await two.next()).map.cards.keys() == {"card-1", "again"}


async def test_card_that_is_removed_while_it_is_not_there_gets_the_map_later(plane: Plane) -> None:
    async with plane.card("card-1") as one, plane.card("card-2") as two, plane.run():
        await two.next()
        await two.close()
        del plane.content["vpcs"]["green"], plane.content["vpcs"]["red"]["interfaces"]["red-2"]
        del plane.content["cards"]["card-2"]
        plane.write()
        while (await one.next()).map.cards.keys() != {"card-1"}:
            pass
        await two.start()
        assert (await two.next()).map.cards.keys() == {"card-1"}


async def test_card_that_is_removed_and_refuses_is_asked_again(plane: Plane) -> None:
    """What it has allows more than it may, until it takes the new map or the old one has expired."""
    async with plane.card("card-1"), plane.card("card-2") as two, plane.run():
        await two.next()
        two.answer = lambda _: b'{"error": "no"}\n'
        del plane.content["vpcs"]["green"], plane.content["vpcs"]["red"]["interfaces"]["red-2"]
        del plane.content["cards"]["card-2"]
        plane.write()
        for _ in range(3):
            assert (await two.next()).map.cards.keys() == {"card-1"}


# -- once -------------------------------------------------------------------------------------------------------


async def test_push_once_sends_to_all_at_the_same_time(plane: Plane) -> None:
    both = asyncio.Barrier(3)
    async with plane.card("card-1") as one, plane.card("card-2") as two:
        for each in (one, two):
            each.before_answer = both.wait
        pushing = asyncio.create_task(push_once(map_of(plane.content), signer=make_signer(), timeout_s=PATIENCE_S))
        async with asyncio.timeout(PATIENCE_S):
            await both.wait()  # each waits for the other, and so would a push after the other
        reports = await pushing
        assert [(report.card, report.outcome.state) for report in reports] == [
            ("card-1", PushState.ACCEPTED),
            ("card-2", PushState.ACCEPTED),
        ]
        assert reports[0].outcome.version == reports[1].outcome.version
