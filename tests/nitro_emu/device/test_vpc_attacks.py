"""Attacks on cards with tenants of two VPCs: strangers, another card, a tenant. Victims' every byte is compared."""

from __future__ import annotations

import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from nitro_emu.abi import admin, io, memory
from nitro_emu.abi.admin import AdminStatus
from nitro_emu.control import ask
from nitro_emu.device.introduction import MAX_INTRODUCTION_BYTES, Hello
from nitro_emu.verbs import AddressHandle, CompStatus, SendOp, VerbsError
from scripts.benches.card_fuzz.raw_device import RawDevice
from srd.proto.wire.data import Opcode
from srd.proto.wire.status import Status
from tests.nitro_emu.device.cards import GUARD, QKEY, Card, Tenant, wait_for
from tests.nitro_emu.device.pattern import pattern
from tests.nitro_emu.device.stage import (
    BLUE_PORT, HIGH, LOW, MALLORY, OUTCAST, RED_PORT, Bystander, Stage, alarms, gid, push_to, stage, stranger,
    while_running,
)  # fmt: skip
from tests.nitro_emu.device.stranger import HANDSHAKES
from tests.nitro_emu.device.tap import Tap
from tests.nitro_emu.device.vpc_cards import EFA_GROUP, ControlPlane, Vf, vpc_cards
from tests.nitro_emu.processes import loopback_address
from tests.srd.cli.processes import Process

FRAMES: Final = 100_000
GUESSES: Final = 100_000
HANDLES: Final = 10_000
RED, BLUE, GREEN, UNKNOWN_VPC = 1, 2, 3, 9
TRUE_SELF: Final = Hello(BLUE, gid(MALLORY), gid(LOW))
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
            with stranger("frames", task) as attacker:

                def work() -> None:
                    red.exchange()
                    blue.exchange()
                    tap.replay([captured[red.exchanged * factor % len(captured)] for factor in (1, 7)])

                done = while_running(attacker, work)
            assert done == {"event": "done", "frames": FRAMES, "opened": 0, "answers": 0}
            red.exchange()
            bystander.assert_untouched()
            assert (on.vpc_counters("efa_0"), on.target.resources("efa_0")) == before
            wait_for(
                lambda: ask(on.target.run_dir, "status")["vfs"]["efa_0"]["peers"] == peers, "the end of other peers"
            )
            raised = alarms(on.target)
            assert set(raised) == {"unknown-card", "egress"}, "the second: answers to strangers, which are not sent"
            assert raised["unknown-card"] >= HANDSHAKES
        on.close_tenants()
    assert_log_is_bounded(on.target, since=started)


def assert_log_is_bounded(card: Card, *, since: float) -> None:
    """After its end: the log has not grown with what attackers did."""
    lines = len(card.process.stderr.all())
    assert lines <= LINES_BEFORE_LIMIT + LINES_PER_S * (time.monotonic() - since), lines


# -- another card ---------------------------------------------------------------------------------------------------

HELLO_HEAD: Final = struct.Struct(">B3xI")
FORGED: Final = {
    "another tenant of the VPC": Hello(BLUE, gid(HIGH), gid(LOW)),
    "the destination itself": Hello(BLUE, gid(LOW), gid(LOW)),
    "the other VPC's tenant": Hello(RED, gid(HIGH), gid(LOW)),
    "no VPC": Hello(0, gid(MALLORY), gid(LOW)),
    "the own address in the other VPC": Hello(RED, gid(MALLORY), gid(LOW)),
    "an unknown VPC": Hello(UNKNOWN_VPC, gid(MALLORY), gid(LOW)),
    "a VPC without interfaces": Hello(GREEN, gid(MALLORY), gid(LOW)),
    "a random VPC": Hello(0xDEADBEEF, gid(MALLORY), gid(LOW)),
    "an unknown address": Hello(BLUE, gid("172.31.9.9"), gid(LOW)),
    "a card's address": Hello(BLUE, gid("127.0.0.1"), gid(LOW)),
    "a GID of zeros": Hello(BLUE, bytes(16), gid(LOW)),
    "a random GID": Hello(BLUE, random.Random(1).randbytes(16), gid(LOW)),
    "a destination elsewhere": Hello(BLUE, gid(MALLORY), gid(HIGH)),
    "itself as the destination": Hello(BLUE, gid(MALLORY), gid(MALLORY)),
    "a random destination": Hello(BLUE, gid(MALLORY), random.Random(2).randbytes(16)),
}
MALFORMED: Final = {
    "empty": b"",
    "one byte": b"\1",
    "its head": TRUE_SELF.pack()[: HELLO_HEAD.size],
    "one byte less": TRUE_SELF.pack()[:-1],
    "version 0": b"\0" + TRUE_SELF.pack()[1:],
    "version 2": b"\2" + TRUE_SELF.pack()[1:],
    "version 255": b"\xff" + TRUE_SELF.pack()[1:],
    "noise": random.Random(3).randbytes(40),
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
    for hello in (Hello(RED, gid(OUTCAST), gid(HIGH)), Hello(BLUE, gid(MALLORY), gid(HIGH))):
        peer = evil.do(evil.open(cards.host, RED_PORT))
        assert not evil.do(evil.say(peer, hello.pack())).is_welcome
        evil.do(evil.ended(peer))
    after = cards.vpc_counters("efa_0")
    assert (after["rx_denied"], after["rx_forged"]) == (before[0]["rx_denied"] + 2, before[0]["rx_forged"])
    assert alarms(cards.target) == before[1]


def test_hello__from_another_host_with_the_same_key_is_forged(cards: Stage, tmp_path: Path) -> None:
    """A stolen key is of no use elsewhere: the packets must come from the card's address, too."""
    from tests.nitro_emu.device.hostile_card import HostileCard  # noqa: PLC0415

    before = cards.vpc_counters("efa_1")["rx_forged"]
    with HostileCard(loopback_address(), key=cards.evil.key, home=tmp_path) as thief:
        peer = thief.do(thief.open(cards.host, BLUE_PORT))
        assert not thief.do(thief.say(peer, TRUE_SELF.pack())).is_welcome
        thief.do(thief.ended(peer))
    assert cards.vpc_counters("efa_1")["rx_forged"] == before + 1


def test_hello__twice_or_too_long_is_refused_and_harms_nothing(cards: Stage) -> None:
    evil = cards.evil
    peer = evil.do(evil.open(cards.host, BLUE_PORT))
    assert evil.do(evil.say(peer, bytes(MAX_INTRODUCTION_BYTES + 1))).status is Status.REMOTE_ERROR_BAD_LENGTH
    assert evil.do(evil.say(peer, TRUE_SELF.pack())).is_welcome
    for again in (TRUE_SELF, Hello(BLUE, gid(HIGH), gid(LOW)), Hello(RED, gid(HIGH), gid(LOW))):
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


def test_guesses__10e5_of_a_card_that_was_let_in_reach_nobody(tmp_path: Path) -> None:
    """Its own packets, authentic: keys of sends and writes, faster than the transport's rules allow it."""
    started = time.monotonic()
    with stage(tmp_path) as on:
        red, blue, bystander = on.pair("red", first=1 << 8), on.pair("blue", first=1 << 16), on.bystander("efa_1")
        victim = bystander.tenant
        red.exchange()
        blue.exchange()
        task = {
            "target": (on.host, BLUE_PORT),
            "source": on.evil.address,
            "key": on.evil.key.private_bytes_raw().hex(),
            "hello": TRUE_SELF.pack().hex(),
            "qp_num": victim.qp.number,
            "address": victim.mr.address,
            "count": GUESSES,
            "seed": 5,
        }
        with stranger("guesses", task) as attacker:

            def work() -> None:
                red.exchange()
                blue.exchange()

            done = while_running(attacker, work)
        assert done["guesses"] == GUESSES
        red.exchange()
        blue.exchange()
        bystander.assert_untouched()
        found = on.target.stats("efa_1")
        assert found["qkey_viol"] > GUESSES // 8, "a third of them were sends to a queue pair that exists"
        assert on.target.stats("efa_0")["qkey_viol"] == 0
        on.close_tenants()
    assert_log_is_bounded(on.target, since=started)
