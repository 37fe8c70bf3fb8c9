"""Introductions without cards: what happens while a document is made, and what never lets a peer in."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from nitro_emu.errors import VpcError
from nitro_emu.peers import introducer as subject
from nitro_emu.peers.attestation import PEER_USER_DATA, PeerAttestation
from nitro_emu.peers.introducer import Introducer
from nitro_emu.peers.introduction import Hello, pack_welcome
from nitro_emu.peers.remote import RemoteState
from nitro_emu.peers.tenancy import ForgeryError, OtherMappingError, TenancyCounters
from nitro_emu.peers.vf_trust import VfTrust
from nitro_emu.trust.alarms import Alarms
from srd.errors import UsageError
from srd.proto.wire.status import Status
from srd.secure.config import Plain
from tests.patience import until

PEER = 7
HELLO = Hello(1, b"s" * 16, b"d" * 16)


class FakePeer:
    own_context, remote_context, credential = 1, 2, b"k" * 32


class FakeEngine:
    """Records which peers are closed; a closed one is no more."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.flushed: list[int] = []
        self.ended = False
        self.trust = self
        self.known_hosts = None

    def peer(self, _number: int) -> FakePeer:
        if self.ended:
            raise UsageError("it has ended")
        return FakePeer()

    def identity(self, credential: bytes) -> Any:
        return type("Identity", (), {"public_key": credential})()

    def close_peer(self, number: int) -> None:
        self.closed.append(number)

    def flush_peer(self, number: int) -> None:
        self.flushed.append(number)


class FakeSources:
    def __init__(self) -> None:
        self.let: list[tuple[int, bytes]] = []

    def host_of(self, _peer: int) -> str | None:
        return "10.0.1.1"

    def let_in(self, peer: int, *, hello: Hello, welcome: bytes) -> None:
        assert hello == HELLO
        self.let.append((peer, welcome))


class FakeTenancy:
    gid, vpc_id, map_version = b"d" * 16, 1, 3

    def __init__(self) -> None:
        self.counters = TenancyCounters()
        self.refusal: VpcError | None = None

    def destination(self, gid: bytes) -> Any:
        raise NotImplementedError(gid)

    def check_source(self, _hello: Hello, *, host: str, public_key: bytes) -> None:
        assert (host, public_key) == ("10.0.1.1", b"k" * 32)
        if self.refusal is not None:
            raise self.refusal


class FakeRemote:
    gid, name, destination = b"r" * 16, "10.0.1.1:19875", None

    def __init__(self) -> None:
        self.peer: int | None = PEER
        self.state = RemoteState.NAMING
        self.said: list[bytes] = []

    def say_hello(self, message: bytes) -> None:
        self.said.append(message)

    def on_welcomed(self) -> None:
        self.state = RemoteState.OPEN


class Rig:
    """An introducer among fakes; its chip makes a document when the gate is opened."""

    def __init__(self, *, has_chip: bool = True) -> None:
        self.engine, self.sources, self.tenancy = FakeEngine(), FakeSources(), FakeTenancy()
        self.alarms = Alarms()
        self.gate = asyncio.Event()
        self.user_data: list[bytes | None] = []
        self.outgoing: dict[int, Any] = {}
        trust = VfTrust(
            security=Plain(),
            tenancy=self.tenancy,
            attestation=PeerAttestation(attest=self._attest if has_chip else None),
            alarms=self.alarms,
            check_egress=lambda _host: None,
            answers=lambda _host: True,
        )
        parts: Any = (self.engine, self.sources)
        self.introducer = Introducer(
            engine=lambda: parts[0],
            trust=trust,
            sources=parts[1],
            outgoing=self.outgoing,
            log=logging.getLogger("test"),
        )

    async def _attest(self, *, nonce: bytes | None, user_data: bytes | None, public_key: bytes | None) -> bytes:
        assert nonce is not None
        assert public_key is None
        self.user_data.append(user_data)
        await self.gate.wait()
        return b"document"

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_hello__is_answered_with_a_document_for_peers() -> None:
    rig = Rig()
    rig.introducer.on_introduction(PEER, HELLO.pack())
    await rig.settle()
    assert not rig.sources.let
    rig.gate.set()
    await rig.settle()
    assert rig.sources.let == [(PEER, pack_welcome(b"document"))]
    assert rig.user_data == [PEER_USER_DATA]


async def test_hello__of_what_a_mapping_withdraws_meanwhile_is_refused() -> None:
    rig = Rig()
    rig.introducer.on_introduction(PEER, HELLO.pack())
    await rig.settle()
    rig.tenancy.refusal = VpcError("no rule any more")
    rig.gate.set()
    await rig.settle()
    assert (rig.sources.let, rig.engine.closed) == ([], [PEER])
    assert rig.tenancy.counters.rx_denied == 1


async def test_document__of_a_peer_that_ends_is_not_waited_for() -> None:
    rig = Rig()
    rig.introducer.on_introduction(PEER, HELLO.pack())
    await rig.settle()
    rig.engine.ended = True
    rig.introducer.on_ended(PEER)
    rig.gate.set()
    await rig.settle()
    assert not rig.sources.let
    assert len(asyncio.all_tasks()) == 1, "only this test's"


@pytest.mark.parametrize(
    ("refusal", "alarm", "counted"),
    [
        (ForgeryError("lie"), {"forged-source": 1}, (0, 1)),
        (OtherMappingError("by another mapping"), {"other-mapping": 1}, (1, 0)),
        (VpcError("no rule"), {}, (1, 0)),
    ],
)
async def test_refusal__is_counted_and_alarmed_by_its_kind(
    refusal: VpcError, alarm: dict[str, int], counted: tuple[int, int]
) -> None:
    rig = Rig(has_chip=False)
    rig.tenancy.refusal = refusal
    rig.introducer.on_introduction(PEER, HELLO.pack())
    assert (rig.sources.let, rig.engine.closed) == ([], [PEER])
    assert dict(rig.alarms.counts) == alarm
    assert (rig.tenancy.counters.rx_denied, rig.tenancy.counters.rx_forged) == counted


async def test_initiator__that_is_never_let_in_gives_the_peer_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "WELCOME_S", 0.0)
    rig, remote = Rig(has_chip=False), FakeRemote()
    rig.outgoing[PEER] = remote
    rig.introducer.say_hello(PEER, rig.outgoing[PEER])
    assert len(remote.said) == 1
    await until(lambda: rig.engine.closed)
    assert (rig.engine.closed, rig.engine.flushed) == ([PEER], [PEER])
    assert rig.tenancy.counters.tx_denied == 1


async def test_initiator__whose_hello_is_refused_gives_the_peer_up() -> None:
    rig, remote = Rig(has_chip=False), FakeRemote()
    rig.outgoing[PEER] = remote
    rig.introducer.on_refused_hello(PEER, Status.REMOTE_ERROR_ABORT)
    assert rig.engine.closed == [PEER]
    remote.state = RemoteState.OPEN
    rig.introducer.on_refused_hello(PEER, Status.REMOTE_ERROR_ABORT)
    assert rig.engine.closed == [PEER], "it was let in"


async def test_welcome__a_second_one_changes_nothing() -> None:
    rig, remote = Rig(has_chip=False), FakeRemote()
    rig.outgoing[PEER] = remote
    rig.introducer.on_introduction(PEER, pack_welcome(b""))
    assert remote.state is RemoteState.OPEN
    rig.introducer.on_introduction(PEER, b"\x09broken")
    assert not rig.engine.closed
