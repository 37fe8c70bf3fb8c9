"""srd.first_answer: which of several addresses is taken, and what becomes of the others. No delay runs out unless 0."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

import pytest

import srd
from srd import first_answer as module
from srd.endpoint import Endpoint
from srd.errors import NoRouteError, PeerError, SrdError
from srd.first_answer import first_answer
from srd.io.syscalls import Address
from srd.peer import Peer
from srd.proto.wire.status import Status
from tests.patience import PATIENCE_S, until
from tests.srd.loopback import SMALL, closed_port, open_files

Hosts = Callable[..., None]
ADDRESSES: list[Address] = [(f"192.0.2.{number}", 7) for number in range(3)]
NOTHING_LISTENS = PeerError("nothing listens there", status=Status.LOCAL_ERROR_UNREACH_REMOTE)
NO_ANSWER = PeerError("no answer within 10 s", status=Status.LOCAL_ERROR_UNRESP_REMOTE)
REFUSED = PeerError("refused: busy", status=Status.REMOTE_ERROR_ABORT)
NO_ROUTE = NoRouteError("name: no route to it")


class Attempts:
    """Attempts that end as they are told to; the tests know a peer by its address."""

    def __init__(self, *ends: Exception | None) -> None:
        self.began: list[Address] = []
        self.cancelled: list[Address] = []
        self._ends = dict(zip(ADDRESSES, ends, strict=False))  # of those that end by themselves

    async def __call__(self, address: Address) -> Peer:
        self.began.append(address)
        if address not in self._ends:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.cancelled.append(address)
                raise
        if (error := self._ends[address]) is not None:
            raise error
        return cast("Peer", address)


@pytest.fixture(autouse=True)
def _no_delay_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPT_DELAY_S", 1000.0)


@pytest.mark.parametrize("error", [NOTHING_LISTENS, NO_ANSWER, NO_ROUTE], ids=str)
async def test_first_answer__one_that_fails_lets_the_next_begin(error: SrdError) -> None:
    attempts = Attempts(error, None)
    assert await first_answer(attempts, ADDRESSES) == cast("Peer", ADDRESSES[1])
    assert attempts.began == ADDRESSES[:2]


async def test_first_answer__one_that_is_silent_goes_on_beside_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPT_DELAY_S", 0.0)
    attempts = Attempts()
    attempts._ends[ADDRESSES[2]] = None
    assert await first_answer(attempts, ADDRESSES) == cast("Peer", ADDRESSES[2])
    assert (attempts.began, attempts.cancelled) == (ADDRESSES, ADDRESSES[:2])


async def test_first_answer__a_refusal_is_an_answer_bad_flow() -> None:
    attempts = Attempts(REFUSED, None)
    with pytest.raises(PeerError, match="refused: busy"):
        await first_answer(attempts, ADDRESSES)
    assert attempts.began == ADDRESSES[:1]


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([NO_ROUTE, NO_ROUTE, NO_ROUTE], "name: no route to it"),
        ([NO_ROUTE, NO_ANSWER, NO_ANSWER], "no answer within 10 s"),
        (
            [NOTHING_LISTENS, NO_ROUTE, NO_ANSWER],
            "nothing listens there at 192.0.2.0; no answer within 10 s at 192.0.2.2",
        ),
    ],
)
async def test_first_answer__what_all_said_is_one_line_bad_flow(ends: list[Exception], said: str) -> None:
    with pytest.raises(SrdError) as caught:
        await first_answer(Attempts(*ends), ADDRESSES)
    assert str(caught.value) == said


async def test_first_answer__cancelled_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ATTEMPT_DELAY_S", 0.0)
    attempts = Attempts()
    asking = asyncio.ensure_future(first_answer(attempts, ADDRESSES))
    await until(lambda: attempts.began == ADDRESSES)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert attempts.cancelled == ADDRESSES


# -- over loopback --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("addresses", [["::1", "127.0.0.1"], ["127.0.0.2", "127.0.0.1"]], ids=str)
async def test_connect__takes_the_address_that_answers(hosts: Hosts, addresses: list[str]) -> None:
    """A name with an AAAA record of a host that listens with IPv4 only, and one with two A records."""
    async with asyncio.timeout(PATIENCE_S), Endpoint.listen("127.0.0.1", 0, config=SMALL) as two:
        hosts(name=addresses)
        files = open_files()
        async with srd.connect("name", two.address[1], config=SMALL) as peer, await two.accept() as there:
            assert peer.address[0].removeprefix("::ffff:") == "127.0.0.1"
            await peer.send(b"hello")
            with await there.recv() as message:
                assert message.gather() == b"hello"
        assert open_files() == files


async def test_connect__nobody_listens_at_any_address_bad_flow(hosts: Hosts) -> None:
    with closed_port() as port:
        hosts(name=["127.0.0.1", "127.0.0.1", "::1"])
        async with asyncio.timeout(PATIENCE_S), Endpoint.open(towards="name", config=SMALL) as one:
            with pytest.raises(PeerError, match=rf"^name:{port}: nothing listens there \(port unreachable\)"):
                await one.connect("name", port)
            assert one.peers == []


async def test_connect__an_endpoint_of_ipv4_reaches_no_address_of_ipv6_bad_flow(hosts: Hosts) -> None:
    hosts(name=["::1"])
    async with Endpoint.open(towards="127.0.0.1", config=SMALL) as one:
        with pytest.raises(NoRouteError, match="name: has no IPv4 address"):
            await one.connect("name", 9)


async def test_listen__an_address_of_the_name_that_this_host_has(hosts: Hosts) -> None:
    hosts(name=["fd00::dead", "192.0.2.1", "127.0.0.1"])
    async with Endpoint.listen("name", 0, config=SMALL) as one:
        assert one.address[0] == "127.0.0.1"
        with pytest.raises(SrdError, match="cannot be bound: Address already in use"):
            await Endpoint.listen("name", one.address[1], config=SMALL)


async def test_open__without_ipv6(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with ipv6.disable=1 in the kernel's command line."""
    make = socket.socket

    def without(family: int = -1, *more: int, **named: object) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return make(family, *more, **named)  # type: ignore[arg-type]

    hosts(name=["::1", "127.0.0.1"])
    monkeypatch.setattr(socket, "socket", without)
    async with Endpoint.open(towards="name", config=SMALL) as one:
        assert one.address[0] == "0.0.0.0"  # noqa: S104 - a text
