"""nitro_emu.vpc.push: how a document goes to a card, and what may be there instead of one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

from nitro_emu.vpc.document import sign_map
from nitro_emu.vpc.push import MAX_REASON, MAX_REPLY_BYTES, CardLink, PushOutcome, PushState, Signed
from tests.nitro_emu.vpc.fake_card import FakeCard
from tests.nitro_emu.vpc.maps import map_of, two_vpcs
from tests.patience import PATIENCE_S

KEY = generate_private_key(SECP384R1())
NOW_S = 1000.0
SHORT_S = 0.2


def signed() -> Signed:
    document = sign_map(map_of(two_vpcs()), version=7, issued_at_s=NOW_S, key=KEY)
    return Signed(version=7, document=document)


def card(address: str, *, reply: bytes | None = b'{"ok": {}}\n', closes: bool = False) -> FakeCard:
    def answer(_: object) -> bytes | None:
        return reply

    return FakeCard(address, key=KEY.public_key(), answer=answer, closes=closes, now=lambda: NOW_S)


async def pushed(address: str, *, timeout_s: float = PATIENCE_S) -> PushOutcome:
    link = CardLink(address, timeout_s=timeout_s)
    try:
        return await link.push(signed)
    finally:
        link.close()


@pytest.mark.parametrize("address", ["unix", "127.0.0.1:0", "localhost:0"])
async def test_card_accepts(tmp_path: Path, address: str) -> None:
    async with card(str(tmp_path / "control.sock") if address == "unix" else address) as there:
        assert await pushed(there.address) == PushOutcome(state=PushState.ACCEPTED, version=7)
        assert (await there.next()).map == map_of(two_vpcs())


REFUSED = [
    (b'{"error": "map: version 7 is not newer than 8"}\n', "map: version 7 is not newer than 8"),
    (b'{"error": "' + b"x" * 1000 + b'"}\n', "x" * MAX_REASON),
    (b"HTTP/1.1 400 Bad Request\r\n", "what answers there is no card"),
    (b"[]\n", "what answers there is no card"),
    (b"{}\n", "what answers there is no card"),
    (b'{"ok": 1}\n', "what answers there is no card"),
    (b'{"error": 1}\n', "what answers there is no card"),
    (b"\xff\n", "what answers there is no card"),
    (b"[" * 60_000 + b"\n", "what answers there is no card"),
]


@pytest.mark.parametrize(("reply", "reason"), REFUSED, ids=range(len(REFUSED)))
async def test_card_refuses(tmp_path: Path, reply: bytes, reason: str) -> None:
    async with card(str(tmp_path / "s"), reply=reply) as there:
        assert await pushed(there.address) == PushOutcome(state=PushState.REFUSED, version=7, reason=reason)


async def test_card_that_closes_without_an_answer(tmp_path: Path) -> None:
    async with card(str(tmp_path / "s"), reply=b"", closes=True) as there:
        reason = "the card has closed the connection without an answer"
        assert await pushed(there.address) == PushOutcome(state=PushState.UNREACHABLE, version=7, reason=reason)


async def test_card_that_never_answers(tmp_path: Path) -> None:
    async with card(str(tmp_path / "s"), reply=None) as there:
        outcome = await pushed(there.address, timeout_s=SHORT_S)
        assert (outcome.state, outcome.reason) == (PushState.UNREACHABLE, f"no answer within {SHORT_S} s")


async def test_reply_without_an_end(tmp_path: Path) -> None:
    async with card(str(tmp_path / "s"), reply=b"x" * (4 * MAX_REPLY_BYTES)) as there:
        outcome = await pushed(there.address)
        assert (outcome.state, outcome.reason[:29]) == (PushState.UNREACHABLE, "what answers there is no card")


async def test_no_card_costs_no_signature(tmp_path: Path) -> None:
    def never() -> Signed:
        raise AssertionError("nobody is there")

    async with card("127.0.0.1:0") as gone:
        address = gone.address
    for nobody, reason in ((str(tmp_path / "s"), "No such file or directory"), (address, "Connection refused")):
        link = CardLink(nobody, timeout_s=PATIENCE_S)
        outcome = await link.push(never)
        assert outcome == PushOutcome(
            state=PushState.UNREACHABLE, version=0, reason=f"no card answers there ({reason})"
        )
        await link.lost()  # there is nothing to lose


@pytest.mark.parametrize("host", ["a..b", 70 * "a"])
async def test_impossible_host_is_named_as_what_it_is(host: str) -> None:
    outcome = await pushed(f"{host}:7471")
    assert (outcome.state, outcome.version) == (PushState.UNREACHABLE, 0)
    assert outcome.reason.startswith(f"{host}:7471 names no host (")
    assert outcome.reason.endswith("; change push: of the card")


async def test_end_of_a_card_is_noticed(tmp_path: Path) -> None:
    async with card(str(tmp_path / "s")) as there:
        link = CardLink(there.address, timeout_s=PATIENCE_S)
        assert (await link.push(signed)).state is PushState.ACCEPTED
        lost = asyncio.ensure_future(link.lost())
        assert not (await asyncio.wait([lost], timeout=0))[0]
    async with asyncio.timeout(PATIENCE_S):
        await lost
    link.close()
    link.close()
