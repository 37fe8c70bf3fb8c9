"""Introductions without cards: what happens while a document is made, and what never lets a peer in."""

from __future__ import annotations

import asyncio
import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from nitro_emu.efa.card.config import EfaConfig
from nitro_emu.errors import VpcError
from nitro_emu.peers import outgoing
from nitro_emu.peers.attestation import PEER_USER_DATA, PeerAttestation
from nitro_emu.peers.endpoint import VfEndpoint
from nitro_emu.peers.introduction import INTRODUCTION_REQUEST, VfHello, pack_welcome
from nitro_emu.peers.outgoing import OutgoingPeer, RemoteState
from nitro_emu.peers.tenancy import ForgeryError, OtherMappingError, TenancyCounters, VfAddress
from nitro_emu.peers.vf_trust import VfTrust
from nitro_emu.trust.alarms import Alarms
from srd.errors import UsageError
from srd.proto.events import Completion, PeerEnded
from srd.proto.wire.status import Status
from srd.proto.work_request import WorkRequest
from srd.secure.config import Plain
from tests.patience import until

pytestmark = pytest.mark.sources  # gives a fake to a compiled module
PEER = 7
HELLO = VfHello(1, b"s" * 16, b"d" * 16)


class FakePeer:
    own_context, remote_context, credential, address = 1, 2, b"k" * 32, ("10.0.1.1", 19875)


class FakeEngine:
    """Records what it is asked for; a peer that has ended is no more."""

    def __init__(self) -> None:
        self.posted: list[bytes] = []
        self.closed: list[int] = []
        self.flushed: list[int] = []
        self.ended = False
        self.trust = self.core = self
        self.known_hosts = None

    def peer(self, _number: int) -> FakePeer:
        if self.ended:
            raise UsageError("it has ended")
        return FakePeer()

    def identity(self, credential: bytes) -> Any:
        return SimpleNamespace(public_key=credential)

    def credential_check(self, *_arguments: Any, **_options: Any) -> None:
        return None

    def connect(self, *_arguments: Any, **_options: Any) -> int:
        return PEER

    def post(self, _number: int, request: WorkRequest) -> None:
        self.posted.append(ctypes.string_at(request.payload_offset, request.length))

    def close_peer(self, number: int) -> None:
        self.closed.append(number)

    def flush_peer(self, number: int) -> None:
        self.flushed.append(number)


class FakeTenancy:
    gid = b"d" * 16

    def __init__(self) -> None:
        self.counters = TenancyCounters()
        self.refusal: VpcError | None = None

    def destination(self, _gid: bytes) -> VfAddress:
        return VfAddress("10.0.1.1", 19875, None, 1, 3)

    def check_source(self, hello: VfHello, *, host: str, public_key: bytes) -> None:
        assert (hello, host, public_key) == (HELLO, "10.0.1.1", b"k" * 32)
        if self.refusal is not None:
            raise self.refusal


class Rig:
    """An endpoint whose engine is a fake, and whose chip makes a document when the gate is opened."""

    def __init__(self, *, has_chip: bool = True) -> None:
        self.engine, self.tenancy, self.alarms = FakeEngine(), FakeTenancy(), Alarms()
        self.gate = asyncio.Event()
        self.user_data: list[bytes | None] = []
        trust = VfTrust(
            security=Plain(),
            tenancy=self.tenancy,
            attestation=PeerAttestation(attest=self._attest if has_chip else None),
            alarms=self.alarms,
            check_egress=lambda _host: None,
            answers=lambda _host: True,
        )
        self.endpoint = VfEndpoint(EfaConfig(name="test", address="10.0.1.2"), trust=trust, on_failure=lambda _: None)
        engine: Any = self.engine
        self.endpoint._engine = engine

    def hears_hello(self) -> None:
        self.endpoint.sources.add(PEER)
        self.endpoint.on_introduction_untrusted(PEER, HELLO.pack())

    def says_hello(self) -> OutgoingPeer:
        """Return the other end, which is to be let in by a WELCOME."""
        remote = self.endpoint.remote(b"r" * 16)
        remote.post(lambda _peer: None, fail=lambda _status: None, number=0)
        remote.on_opened()
        return remote

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
    rig.hears_hello()
    await rig.settle()
    assert rig.endpoint.sources.named(PEER) is None
    assert not rig.engine.posted
    rig.gate.set()
    await rig.settle()
    assert rig.endpoint.sources.named(PEER) is not None
    assert rig.engine.posted == [pack_welcome(b"document")]
    assert rig.user_data == [PEER_USER_DATA]


async def test_hello__of_what_a_mapping_withdraws_meanwhile_is_refused() -> None:
    rig = Rig()
    rig.hears_hello()
    await rig.settle()
    rig.tenancy.refusal = VpcError("no rule any more")
    rig.gate.set()
    await rig.settle()
    assert (rig.endpoint.sources.named(PEER), rig.engine.closed) == (None, [PEER])
    assert rig.tenancy.counters.rx_denied == 1


async def test_document__of_a_peer_that_ends_is_not_waited_for() -> None:
    rig = Rig()
    rig.hears_hello()
    await rig.settle()
    rig.engine.ended = True
    rig.endpoint.on_ended(PeerEnded(PEER, Status.OK, "", ()))
    rig.gate.set()
    await rig.settle()
    assert not rig.engine.posted
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
    rig.hears_hello()
    assert (rig.engine.posted, rig.engine.closed) == ([], [PEER])
    assert dict(rig.alarms.counts) == alarm
    assert (rig.tenancy.counters.rx_denied, rig.tenancy.counters.rx_forged) == counted


async def test_initiator__that_is_never_let_in_gives_the_peer_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "WELCOME_S", 0.0)
    rig = Rig(has_chip=False)
    rig.says_hello()
    assert rig.engine.posted == [VfHello(1, b"d" * 16, b"r" * 16, map_version=3).pack()]
    await until(lambda: rig.engine.closed)
    assert (rig.engine.closed, rig.engine.flushed) == ([PEER], [PEER])
    assert rig.tenancy.counters.tx_denied == 1


async def test_initiator__whose_hello_is_refused_gives_the_peer_up() -> None:
    rig = Rig(has_chip=False)
    remote = rig.says_hello()
    refused = Completion(PEER, INTRODUCTION_REQUEST, Status.REMOTE_ERROR_ABORT)
    rig.endpoint.on_hello_completed(refused)
    assert rig.engine.closed == [PEER]
    remote.state = RemoteState.OPEN
    rig.endpoint.on_hello_completed(refused)
    assert rig.engine.closed == [PEER], "it was let in"


async def test_welcome__a_second_one_changes_nothing() -> None:
    rig = Rig(has_chip=False)
    remote = rig.says_hello()
    rig.endpoint.on_introduction_untrusted(PEER, pack_welcome(b""))
    assert remote.state is RemoteState.OPEN
    rig.endpoint.on_introduction_untrusted(PEER, b"\x09broken")
    assert not rig.engine.closed


async def test_a_request_that_is_withdrawn_is_neither_posted_nor_failed() -> None:
    rig = Rig(has_chip=False)
    remote = rig.endpoint.remote(b"r" * 16)
    done: list[tuple[str, int]] = []
    for number in range(4):
        remote.post(
            lambda _peer, number=number: done.append(("posted", number)),  # type: ignore[misc]
            fail=lambda _status, number=number: done.append(("failed", number)),  # type: ignore[misc]
            number=number,
        )
    assert [remote.withdraw(number) for number in (1, 1, 9)] == [True, False, False]
    remote.on_opened()
    remote.on_welcome_untrusted(pack_welcome(b""))
    assert done == [("posted", 0), ("posted", 2), ("posted", 3)], "in their order"
