"""Attacks on cards with tenants of two VPCs: strangers, another card, a tenant. Victims' every byte is compared."""

from __future__ import annotations

import base64
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from nitro_emu.card.control import ask
from nitro_emu.efa.abi import io
from nitro_emu.efa.verbs import AddressHandle, CompStatus, SendOp, VerbsError
from nitro_emu.efa.verbs.send_queue import UdAddress
from nitro_emu.gid import address_of_untrusted, gid_of
from nitro_emu.peers.introduction import MAX_INTRODUCTION_BYTES, VfHello
from nitro_emu.trust.alarms import ALARM_BURST, ALARMS_PER_S
from scripts.harness.process import ProcessGroup
from scripts.harness.worker import worker
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from srd.secure.noise import public_bytes
from tests.nitro_emu.cards import GUARD, QKEY, Card, Tenant, card, tenants
from tests.nitro_emu.express.tap import Tap
from tests.nitro_emu.hostile_card import HostileCard
from tests.nitro_emu.pattern import pattern
from tests.nitro_emu.processes import loopback_address
from tests.nitro_emu.stage import (
    BLUE_PORT,
    HIGH,
    LOW,
    MALLORY,
    OUTCAST,
    RED_PORT,
    Bystander,
    Stage,
    alarms,
    gid,
    push_to,
    stage,
    stranger,
    while_running,
)  # fmt: skip
from tests.nitro_emu.stranger import HANDSHAKES
from tests.nitro_emu.vpc_cards import ControlPlane, Vf, vpc_cards
from tests.patience import wait_until

pytestmark = pytest.mark.compiled  # cards as processes

FRAMES: Final = 100_000
RED, BLUE, UNKNOWN_VPC = 1, 2, 9
TRUE_SELF: Final = VfHello(BLUE, gid(MALLORY), gid(LOW))
LINES_BEFORE_LIMIT, LINES_PER_S = 200, 25
"""Of a card's log: what the limits of its tenants and of its alarms let pass, twice."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("stage")) as made:
        yield made


@pytest.fixture
def cards(shared: Stage) -> Iterator[Stage]:
    """The cards without tenants of tests before."""
    yield shared
    shared.close_tenants()


# -- strangers ------------------------------------------------------------------------------------------------------


def recorded(on: Stage) -> tuple[Tap, list[bytes]]:
    """Packets of a handshake and of messages between the red tenants, as they were on the wire."""
    tap = Tap((on.host, RED_PORT), source=on.address("card-a"))
    interface = on.control_plane.vpcs["red"]["interfaces"]["card-b-efa-0"]
    interface["port"] = tap.port
    push_to(on.cards["card-a"], on.control_plane.document())
    interface["port"] = RED_PORT
    return tap, tap.recorded


@pytest.mark.long
def test_frames_of_strangers__disturb_nobody(tmp_path: Path) -> None:
    """10^5 of them, to both VFs of a card: from own addresses and with those of the victim's card, recorded and not."""
    started = time.monotonic()
    with stage(tmp_path) as on:
        tap, packets = recorded(on)
        with tap:
            red, blue, bystander = on.pair("red", first=1 << 8), on.pair("blue", first=1 << 16), on.bystander("efa_0")
            for _ in range(20):
                red.exchange()
            captured = packets[:400]
            assert {packet[1] for packet in packets} >= {1, 3, 4, 14, 15}, "data, handshake and control"
            before = on.vpc_counters("efa_0"), on.target.resources("efa_0")
            peers = ask(on.target.run_dir, "status")["vfs"]["efa_0"]["peers"]
            task = {
                "targets": [(on.host, RED_PORT), (on.host, BLUE_PORT)],
                "sources": [loopback_address(), loopback_address(), on.address("card-a"), on.address("card-a")],
                "own": 2,
                "captured": [packet.hex() for packet in captured],
                "count": FRAMES,
                "seed": 1,
            }
            with stranger(task) as attacker:

                def work() -> None:
                    red.exchange()
                    blue.exchange()
                    tap.replay([captured[red.exchanged * factor % len(captured)] for factor in (1, 7)])

                done = while_running(attacker, work)
            assert done == {"event": "done", "frames": FRAMES, "opened": 0, "answers": 0}
            red.exchange()
            bystander.assert_untouched()
            assert (on.vpc_counters("efa_0"), on.target.resources("efa_0")) == before
            wait_until(lambda: ask(on.target.run_dir, "status")["vfs"]["efa_0"]["peers"] == peers)
            raised = alarms(on.target)
            assert set(raised) == {"unknown-card"}
            assert raised["unknown-card"] >= HANDSHAKES
            counted = on.target.stats("efa_0")["security"]
            assert counted["forged_pkts"] > 0
            assert counted["replayed_pkts"] > 0
        on.close_tenants()
    assert_log_is_bounded(on.target, since=started)


def assert_log_is_bounded(card: Card, *, since: float) -> None:
    """After its end: the log has not grown with what attackers did."""
    lines = len(card.process.stderr.all())
    assert lines <= LINES_BEFORE_LIMIT + LINES_PER_S * (time.monotonic() - since), lines


# -- another card ---------------------------------------------------------------------------------------------------

# More of each kind: test_tenancy, test_introduction.
FORGED: Final = {
    "another tenant of the VPC": VfHello(BLUE, gid(HIGH), gid(LOW)),
    "the other VPC's tenant": VfHello(RED, gid(HIGH), gid(LOW)),
    "an unknown VPC": VfHello(UNKNOWN_VPC, gid(MALLORY), gid(LOW)),
    "an unknown address": VfHello(BLUE, gid("172.31.9.9"), gid(LOW)),
    "a destination elsewhere": VfHello(BLUE, gid(MALLORY), gid(HIGH)),
}
MALFORMED: Final = {
    "empty": b"",
    "version 2": b"\2" + TRUE_SELF.pack()[1:],
    "the longest": b"\xff" * MAX_INTRODUCTION_BYTES,
}
LIES: Final = {name: hello.pack() for name, hello in FORGED.items()} | MALFORMED


@pytest.mark.parametrize("lie", LIES)
def test_hello__that_lies_closes_the_peer_with_an_alarm(cards: Stage, lie: str) -> None:
    evil, before = cards.evil, (cards.vpc_counters("efa_1"), alarms(cards.target))
    peer = evil.do(evil.open(cards.host, BLUE_PORT))
    answer = evil.do(evil.say(peer, LIES[lie]))
    assert not answer.is_welcome
    evil.do(evil.ended(peer))
    after = cards.vpc_counters("efa_1")
    assert after["rx_forged"] == before[0]["rx_forged"] + 1
    assert after["rx_denied"] == before[0]["rx_denied"]
    assert alarms(cards.target)["forged-source"] == before[1]["forged-source"] + 1


def test_hello__of_what_no_rule_allows_is_denied_without_an_alarm(cards: Stage) -> None:
    evil, before = cards.evil, (cards.vpc_counters("efa_0"), alarms(cards.target))
    for hello in (VfHello(RED, gid(OUTCAST), gid(HIGH)), VfHello(BLUE, gid(MALLORY), gid(HIGH))):
        peer = evil.do(evil.open(cards.host, RED_PORT))
        assert not evil.do(evil.say(peer, hello.pack())).is_welcome
        evil.do(evil.ended(peer))
    after = cards.vpc_counters("efa_0")
    assert (after["rx_denied"], after["rx_forged"]) == (before[0]["rx_denied"] + 2, before[0]["rx_forged"])
    assert alarms(cards.target) == before[1]


@pytest.mark.parametrize("source", [MALLORY, HIGH], ids=["the key's own tenant", "the address's tenant"])
def test_hello__with_a_cards_key_from_another_cards_address_is_forged(
    cards: Stage, tmp_path: Path, source: str
) -> None:
    """Key and address must be of the same card: neither a stolen key is enough, nor packets with a card's address."""
    before = cards.vpc_counters("efa_1")["rx_forged"]
    with HostileCard(cards.address("card-a"), key=cards.evil.key, home=tmp_path) as thief:
        peer = thief.do(thief.open(cards.host, BLUE_PORT))
        assert not thief.do(thief.say(peer, VfHello(BLUE, gid(source), gid(LOW)).pack())).is_welcome
        thief.do(thief.ended(peer))
    assert cards.vpc_counters("efa_1")["rx_forged"] == before + 1


def test_hello__with_a_cards_key_from_no_cards_address_gets_no_answer(cards: Stage, tmp_path: Path) -> None:
    with (
        HostileCard(loopback_address(), key=cards.evil.key, home=tmp_path, opens_within_s=2.0) as thief,
        pytest.raises(ConnectionRefusedError, match="LOCAL_ERROR_UNREACH_REMOTE"),
    ):
        thief.do(thief.open(cards.host, BLUE_PORT))


def test_hello__twice_or_too_long_is_refused_and_harms_nothing(cards: Stage) -> None:
    evil = cards.evil
    peer = evil.do(evil.open(cards.host, BLUE_PORT))
    assert evil.do(evil.say(peer, bytes(MAX_INTRODUCTION_BYTES + 1))).status is Status.REMOTE_ERROR_BAD_LENGTH
    assert evil.do(evil.say(peer, TRUE_SELF.pack())).is_welcome
    for again in (TRUE_SELF, VfHello(BLUE, gid(HIGH), gid(LOW)), VfHello(RED, gid(HIGH), gid(LOW))):
        assert evil.do(evil.say(peer, again.pack())).status is Status.REMOTE_ERROR_ABORT
    victim = cards.tenant("card-b", "efa_1")
    victim.receive(7, victim.sge(8))
    key = victim.qp.number << 48 | QKEY
    assert evil.do(evil.post(peer, key=key, content=b"my name!")) is Status.OK
    received = victim.completion()
    assert (received.wr_id, received.vendor_error) == (7, CompStatus.OK), "it is still who it said first"
    evil.do(evil.close_peer(peer))


def keys_of(victim: Tenant) -> list[tuple[str, Opcode, int, int | None]]:
    """Requests that would be carried out if the sender were let in: kind, operation, key, immediate."""
    qp_num, rkey = victim.qp.number, victim.mr.rkey
    return [
        ("send", Opcode.SEND, qp_num << 48 | QKEY, None),
        ("write", Opcode.WRITE, rkey << 32 | qp_num << 16, None),
        ("write with immediate", Opcode.WRITE, rkey << 32 | qp_num << 16, 5),
        ("read", Opcode.READ, rkey << 32 | qp_num << 16, None),
    ]


def test_requests__before_being_let_in_are_refused(cards: Stage) -> None:
    """With all keys right. And the answer does not tell whether a queue pair exists."""
    evil, red = cards.evil, cards.pair("red", first=1 << 20)
    bystander = cards.bystander("efa_0")
    peer = evil.do(evil.open(cards.host, RED_PORT))
    for _, opcode, key, immediate in keys_of(bystander.tenant):
        offset = bystander.tenant.mr.address if opcode is not Opcode.SEND else 0
        guessed = key ^ 0xFF << (48 if opcode is Opcode.SEND else 16)
        for each in (key, guessed):
            status = evil.do(
                evil.post(peer, key=each, content=b"\xee" * 8, opcode=opcode, offset=offset, immediate=immediate)
            )
            assert status is Status.REMOTE_ERROR_BAD_DEST_QPN
        red.exchange()
    bystander.assert_untouched()
    assert not evil.landing.bytes.any(), "it has read something"
    assert not evil.has_ended(peer)
    evil.do(evil.close_peer(peer))


def test_keys_of_another_tenant__are_refused_after_being_let_in(cards: Stage) -> None:
    """The keys of red's memory and queue pairs, which it somehow knows, over its peer to blue's VF."""
    evil, bystander = cards.evil, cards.bystander("efa_0")
    own = cards.tenant("card-b", "efa_1")
    peer = evil.do(evil.open(cards.host, BLUE_PORT))
    assert evil.do(evil.say(peer, TRUE_SELF.pack())).is_welcome
    red, address = bystander.tenant, bystander.tenant.mr.address
    statuses = {
        "its rkey, with an own queue pair": (Opcode.WRITE, red.mr.rkey << 32 | own.qp.number << 16),
        "its rkey to read": (Opcode.READ, red.mr.rkey << 32 | own.qp.number << 16),
    }
    for what, (opcode, key) in statuses.items():
        status = evil.do(evil.post(peer, key=key, content=b"\xee" * 8, opcode=opcode, offset=address))
        assert status is Status.REMOTE_ERROR_BAD_ADDRESS, what
    bystander.assert_untouched()
    assert (own.bytes == GUARD).all()
    assert not evil.landing.bytes.any()
    evil.do(evil.close_peer(peer))


def test_guesses__of_a_card_that_was_let_in_end_with_the_right_statuses(cards: Stage) -> None:
    evil, blue, bystander = cards.evil, cards.pair("blue", first=1 << 21), cards.bystander("efa_1")
    victim, rng = bystander.tenant, random.Random(4)
    peer = evil.do(evil.open(cards.host, BLUE_PORT))
    assert evil.do(evil.say(peer, TRUE_SELF.pack())).is_welcome
    before = cards.target.stats("efa_1")["qkey_viol"]
    nobody = [rng.getrandbits(15) | 1 << 15 for _ in range(100)]
    wrong = {
        Status.REMOTE_ERROR_BAD_DEST_QPN: [
            *((Opcode.SEND, qp_num << 48 | QKEY, 0) for qp_num in nobody),
            *((Opcode.SEND, victim.qp.number << 48 | rng.getrandbits(32) & ~1, 0) for _ in range(100)),
            *((Opcode.WRITE, victim.mr.rkey << 32 | qp_num << 16, victim.mr.address) for qp_num in nobody),
        ],
        Status.REMOTE_ERROR_BAD_ADDRESS: [
            *(
                (opcode, (victim.mr.rkey ^ rng.getrandbits(31) + 1) << 32 | victim.qp.number << 16, victim.mr.address)
                for opcode in (Opcode.WRITE, Opcode.READ)
                for _ in range(50)
            ),
            *(
                (Opcode.WRITE, victim.mr.rkey << 32 | victim.qp.number << 16, victim.mr.address + beyond)
                for beyond in (-1, -8, 1 << 16, (1 << 16) - 7, 1 << 40)
            ),
        ],
    }
    for status, guesses in wrong.items():
        work = evil.begin(evil.guess(peer, guesses))
        while not work.done():
            blue.exchange()
        assert work.result() == {status: len(guesses)}
    bystander.assert_untouched()
    assert not evil.landing.bytes.any()
    assert cards.target.stats("efa_1")["qkey_viol"] >= before + 100
    evil.do(evil.close_peer(peer))


def test_alarms__of_many_lies_are_counted_and_do_not_fill_the_log(tmp_path: Path) -> None:
    started, lies = time.monotonic(), 200
    with stage(tmp_path) as on:
        red = on.pair("red", first=1 << 8)
        work = on.evil.begin(lie_again(on, lies=lies))
        while not work.done():
            red.exchange()
        work.result()
        assert alarms(on.target) == {"forged-source": lies}
        assert on.vpc_counters("efa_1")["rx_forged"] == lies
        assert on.vpc_counters("efa_0")["rx_forged"] == 0
        on.close_tenants()
    logged = [line for line in on.target.process.stderr.all() if "forged-source" in line]
    assert ALARM_BURST <= len(logged) <= ALARM_BURST + ALARMS_PER_S * (time.monotonic() - started)


async def lie_again(on: Stage, *, lies: int) -> None:
    for _ in range(lies):
        peer = await on.evil.open(on.host, BLUE_PORT)
        assert not (await on.evil.say(peer, FORGED["the other VPC's tenant"].pack())).is_welcome
        await on.evil.ended(peer)


# -- a tenant -------------------------------------------------------------------------------------------------------


LOCAL: Final = {CompStatus.LOCAL_ERROR_INVALID_AH, CompStatus.LOCAL_ERROR_INVALID_LKEY}
REMOTE: Final = {CompStatus.REMOTE_ERROR_BAD_DEST_QPN, CompStatus.REMOTE_ERROR_BAD_ADDRESS}


def test_requests__of_a_tenant_with_random_numbers_reach_nobody(cards: Stage) -> None:
    """Address handles, queue pairs and keys at random, those of the other VPC's tenants among them."""
    red, rng = cards.pair("red", first=1 << 22), random.Random(7)
    victims = [cards.bystander("efa_0"), cards.bystander("efa_1")]
    neighbour = Bystander(cards.tenant("card-a", "efa_0"))
    evil = cards.tenant("card-a", "efa_1")
    ah = AddressHandle(evil.pd, gid=gid(LOW))
    qp_nums = [each.tenant.qp.number for each in victims]
    rkeys = [victims[0].tenant.mr.rkey, neighbour.tenant.mr.rkey, red.right.mr.rkey]
    lkeys = [neighbour.tenant.mr.lkey + 1000, rng.getrandbits(24), 0]
    statuses: Counter[CompStatus] = Counter()
    for number in range(500):
        for index in range(evil.qp.send_queue.depth):
            is_foreign_ah = index % 2 == 1
            destination = UdAddress(
                rng.getrandbits(16) | 1 << 14 if is_foreign_ah else ah.number,
                rng.choice((*qp_nums, rng.getrandbits(16))),
                rng.getrandbits(32) & ~1,
            )
            lkey = rng.choice((evil.mr.lkey, evil.mr.lkey, *lkeys))
            if rng.random() < 0.3:
                draft = evil.qp.send_queue.reserve(number)
                draft.destination, draft.sges = destination, (io.Sge(evil.mr.address, 64, lkey),)
                evil.qp.send_queue.write(draft)
                continue
            evil.qp.send_queue.post_many(
                rng.choice((SendOp.RDMA_WRITE, SendOp.RDMA_READ)), destination=destination,
                addresses=evil.mr.address, lengths=64, lkey=lkey, wr_ids=np.array([number], np.uint64),
                remote_addresses=victims[rng.randrange(2)].tenant.mr.address,
                rkey=rng.choice((*rkeys, rng.getrandbits(32))),
            )  # fmt: skip
        evil.qp.send_queue.ring()
        statuses.update(CompStatus(done.vendor_error) for done in evil.completions(evil.qp.send_queue.depth))
        if number % 10 == 0:
            red.exchange()
    assert set(statuses) == LOCAL | REMOTE
    for each in (*victims, neighbour):
        each.assert_untouched()
    assert (evil.bytes == GUARD).all(), "it has read something"
    del ah


def test_a_hostile_program__in_one_vpc_is_not_noticed_in_the_other(cards: Stage) -> None:
    red, bystander = cards.pair("red", first=1 << 23), cards.bystander("efa_0")
    gids = [gid(address).hex() for address in (LOW, HIGH, OUTCAST, MALLORY)]
    device = str(cards.cards["card-a"].socket("efa_1"))
    with ProcessGroup() as group:
        fuzzer = group.start("fuzzer", worker("scripts.benches.card_fuzz.host", "fuzz", path=device, seed=8, gids=gids))
        for _ in range(20):
            fuzzer.write(b"100\n")
            red.exchange()
            assert group.event(fuzzer, "took")["entries"] > 0
    red.exchange()
    bystander.assert_untouched()


# -- when traffic is encrypted ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A row of the whitepaper's table (see `nitro_emu.vpc.rules`): what the mapping says, and who is on the path."""

    change: Callable[[ControlPlane], None] = lambda _: None
    remote: tuple[str, str] = ("red", HIGH)
    """VPC and private address of the other end."""
    source: str = "card-a"
    """The card whose address a middlebox sends from; "": one of its own."""
    has_handle: bool = True
    """Whether an address handle is allowed."""
    is_carried: bool = False
    other_end_is_plain: bool = False


def other_region(control_plane: ControlPlane) -> None:
    control_plane.cards["card-b"]["region"] = "other"


def peered(control_plane: ControlPlane) -> None:
    control_plane.peerings = [("red", "green")]
    for vpc, peer in (("red", "green"), ("green", "red")):
        for direction in ("ingress", "egress"):
            control_plane.vpcs[vpc]["groups"]["efa"][direction].append({"protocol": "all", "group": f"{peer}/efa"})


def peered_in_another_region(control_plane: ControlPlane) -> None:
    peered(control_plane)
    other_region(control_plane)


def another_key(control_plane: ControlPlane) -> None:
    key = public_bytes(X25519PrivateKey.generate())
    control_plane.cards["card-b"]["public_key"] = base64.b64encode(key).decode()


GREEN_VF: Final = ("green", "10.9.0.7")
TABLE: Final = {
    "capable, same region, same VPC": Case(is_carried=True),
    "capable, same region, peered VPCs": Case(peered, GREEN_VF, is_carried=True),
    "capable, same region, VPCs that are not peered": Case(remote=GREEN_VF, has_handle=False),
    "capable, another region": Case(other_region, has_handle=False),
    "capable, another region, peered VPCs": Case(peered_in_another_region, GREEN_VF, has_handle=False),
    "one end is not capable: plain text": Case(other_end_is_plain=True),
    "one end is not capable: not the key of the mapping": Case(another_key),
    "a middlebox": Case(source=""),
    "a middlebox with another card's address": Case(source="card-c"),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.long] if name == "a middlebox" else [])  # one of two
        for name, case in TABLE.items()
    ],
)
def test_traffic__is_encrypted_or_not_carried(tmp_path: Path, case: Case) -> None:
    """What is on the wire is recorded between the cards: no eight bytes of the payload are in it, whatever happens."""
    wanted = {
        "card-a": (Vf("efa_0", "red", LOW),),
        "card-b": (Vf("efa_0", *case.remote),),
    }
    data = pattern(1, length=48_000)
    with ExitStack() as running:
        control_plane, on = running.enter_context(vpc_cards(tmp_path, wanted, pushes=False))
        key = public_bytes(X25519PrivateKey.generate())
        control_plane.add("card-c", address=loopback_address(), public_key=key, run_dir=tmp_path, vfs=())
        del control_plane.run_dirs["card-c"]
        case.change(control_plane)
        control_plane.push()
        tap = running.enter_context(on_the_path(control_plane, on["card-a"], case=case, home=tmp_path))
        left, right = Tenant(on["card-a"]), Tenant(on["card-b"])
        running.callback(left.close)
        running.callback(right.close)
        left.bytes[: len(data)] = data
        right.receive(1, right.sge(8000))
        if not case.has_handle:
            with pytest.raises(VerbsError):
                AddressHandle(left.pd, gid=right.gid)
        else:
            ah = AddressHandle(left.pd, gid=right.gid)
            left.send(ah, right.qp.number, left.sge(8000), wr_id=1)
            left.rdma(
                SendOp.RDMA_WRITE, ah, to=right.qp.number, local=left.sge(len(data)), rkey=right.mr.rkey,
                address=right.mr.address + 8000, wr_id=2,
            )  # fmt: skip
            statuses = {CompStatus(done.vendor_error) for done in left.completions(2)}
            assert (statuses == {CompStatus.OK}) is case.is_carried
            assert case.is_carried or statuses <= NOT_CARRIED
        carried = right.bytes[8000 : 8000 + len(data)]
        assert (carried == (data if case.is_carried else GUARD)).all()
        assert (right.bytes[:8000] == (data[:8000] if case.is_carried else GUARD)).all()
        assert len(b"".join(tap.recorded)) >= (len(data) if case.is_carried else 0)
        assert not tap.shows(data)


NOT_CARRIED: Final = {
    CompStatus.LOCAL_ERROR_UNREACH_REMOTE,
    CompStatus.LOCAL_ERROR_UNRESP_REMOTE,
    CompStatus.REMOTE_ERROR_FEATURE_MISMATCH,
}


@contextmanager
def on_the_path(control_plane: ControlPlane, first: Card, *, case: Case, home: Path) -> Iterator[Tap]:
    """Have the first card send to a tap instead of the second; or, through it, to an end that speaks plain text."""
    host = str(control_plane.cards["card-b"]["address"])
    source = str(control_plane.cards[case.source]["address"]) if case.source else loopback_address()
    with ExitStack() as opened:
        target = (host, RED_PORT)
        if case.other_end_is_plain:
            plain = HostileCard(loopback_address(), key=X25519PrivateKey.generate(), home=home, is_plain=True)
            target = opened.enter_context(plain).engine.address
        tap = opened.enter_context(Tap(target, source=source, entrance=host))
        vpc, _ = case.remote
        control_plane.vpcs[vpc]["interfaces"]["card-b-efa-0"]["port"] = tap.port
        push_to(first, control_plane.document())
        yield tap


def test_tap__would_show_plain_text(tmp_path: Path) -> None:
    """The recording of the test above, of cards without keys: it has all of the payload."""
    data = pattern(1, length=8000)
    with (
        card(tmp_path / "a") as first,
        card(tmp_path / "b") as second,
        tenants((first, "efa_0"), (second, "efa_0")) as (left, right),
    ):
        host, port = address_of_untrusted(right.gid)
        with Tap((host, port), source=address_of_untrusted(left.gid)[0]) as tap:
            left.bytes[: len(data)] = data
            right.receive(1, right.sge(8000))
            ah = AddressHandle(left.pd, gid=gid_of(host, port=tap.port))
            left.send(ah, right.qp.number, left.sge(8000))
            assert left.completion().vendor_error == right.completion().vendor_error == CompStatus.OK
            assert tap.shows(data)
