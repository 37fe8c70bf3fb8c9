"""VPCs and security groups on real cards: who reaches whom, what is refused, and what a new mapping ends."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nitro_emu.card.control import ask
from nitro_emu.efa.verbs import AddressHandle, CompStatus, SendOp, VerbsError
from tests.nitro_emu.cards import GUARD, Card, Tenant, exchange
from tests.nitro_emu.pattern import pattern
from tests.nitro_emu.vpc_cards import ControlPlane, Vf, vpc_cards

pytestmark = pytest.mark.compiled  # cards as processes

OK = CompStatus.OK
RED, BLUE = "172.31.0.5", "172.31.0.6"
CARDS = {
    # Both VPCs have the same two addresses: red's first is on card-a, blue's first on card-b.
    "card-a": (Vf("efa_0", "red", RED), Vf("efa_1", "blue", BLUE)),
    "card-b": (Vf("efa_0", "red", BLUE), Vf("efa_1", "blue", RED)),
}


@contextmanager
def four_tenants(running: dict[str, Card]) -> Iterator[dict[tuple[str, str], Tenant]]:
    opened: dict[tuple[str, str], Tenant] = {}
    try:
        for name, vfs in CARDS.items():
            for vf in vfs:
                opened[vf.vpc, vf.private_address] = Tenant(running[name], vf.name)
        yield opened
    finally:
        for tenant in opened.values():
            tenant.close()


def vpc_counters(card: Card, name: str) -> dict[str, int]:
    found: dict[str, int] = card.stats(name)["vpc"]
    return found


def test_same_addresses_in_two_vpcs__do_not_collide(tmp_path: Path) -> None:
    with vpc_cards(tmp_path, CARDS) as (control_plane, running), four_tenants(running) as tenants:
        found: dict[str, Any] = ask(running["card-a"].run_dir, "status")
        vf = found["vfs"]["efa_0"]
        assert (vf["vpc"], vf["private_address"]) == ("red", RED)
        assert found["trust"]["mapping"]["version"] == control_plane.version
        for vpc in ("red", "blue"):
            left, right = tenants[vpc, RED], tenants[vpc, BLUE]
            other = tenants["blue" if vpc == "red" else "red", BLUE]
            assert left.gid == gid(RED)
            other.bytes[:] = GUARD
            exchange(left, right, number=1 if vpc == "red" else 2, ah=AddressHandle(left.pd, gid=gid(BLUE)))
            assert (other.bytes == GUARD).all(), "the tenant with the same address in the other VPC saw it"


def gid(address: str) -> bytes:
    return Vf("", "", address).gid


def test_write_and_read__between_interfaces_of_a_vpc(tmp_path: Path) -> None:
    with vpc_cards(tmp_path, CARDS) as (_, running), four_tenants(running) as tenants:
        left, right = tenants["red", RED], tenants["red", BLUE]
        ah = AddressHandle(left.pd, gid=gid(BLUE))
        data = pattern(7, length=50_000)
        left.bytes[:50_000] = data
        for op in (SendOp.RDMA_WRITE, SendOp.RDMA_READ):
            left.rdma(
                op, ah, to=right.qp.number, local=left.sge(50_000), rkey=right.mr.rkey, address=right.mr.address + 500
            )
            assert left.completion().vendor_error == OK
            assert (right.bytes[500:50_500] == data).all()
            assert (right.bytes[:500] == GUARD).all()
            assert (right.bytes[50_500:] == GUARD).all()
            if op is SendOp.RDMA_READ:
                assert (left.bytes[:50_000] == data).all()
            left.bytes[:50_000] = 0  # for what is read


def test_address_handle__of_what_the_mapping_does_not_allow_is_refused(tmp_path: Path) -> None:
    with vpc_cards(tmp_path, CARDS) as (control_plane, running):
        control_plane.vpcs["blue"]["interfaces"]["card-b-efa-1"]["groups"] = ["none"]
        control_plane.push()
        with four_tenants(running) as tenants:
            refused = {
                "no interface": (tenants["red", RED], gid("172.31.0.77")),
                "the card's own address": (tenants["red", RED], card_gid(control_plane, "card-b")),
                "no group": (tenants["blue", BLUE], gid(RED)),
            }
            for what, (tenant, to) in refused.items():
                with pytest.raises(VerbsError) as error:
                    AddressHandle(tenant.pd, gid=to)
                assert error.value.errno == errno.EINVAL, what
            AddressHandle(tenants["red", RED].pd, gid=gid(BLUE))
            assert vpc_counters(running["card-a"], "efa_0")["tx_denied"] == 2
            assert vpc_counters(running["card-a"], "efa_1")["tx_denied"] == 1


def card_gid(control_plane: ControlPlane, name: str) -> bytes:
    return Vf("", "", control_plane.cards[name]["address"]).gid


def test_rule__withdrawn_in_the_middle_of_a_transfer_ends_it(tmp_path: Path) -> None:
    with vpc_cards(tmp_path, CARDS) as (control_plane, running), four_tenants(running) as tenants:
        left, right, bystander = tenants["red", RED], tenants["red", BLUE], tenants["blue", BLUE]
        ah, other_ah = AddressHandle(left.pd, gid=gid(BLUE)), AddressHandle(bystander.pd, gid=gid(RED))
        exchange(left, right, number=1, ah=ah)
        exchange(bystander, tenants["blue", RED], number=2, ah=other_ah)
        left.retry(7)  # for ever: nothing is posted at the other end
        left.send(ah, right.qp.number, left.sge(3000), wr_id=5)
        red = control_plane.vpcs["red"]["groups"]["efa"]
        red["ingress"] = []
        control_plane.push()
        assert left.completion().vendor_error == CompStatus.LOCAL_ERROR_UNREACH_REMOTE
        left.send(ah, right.qp.number, left.sge(3000), wr_id=6)
        assert left.completion().vendor_error == CompStatus.LOCAL_ERROR_UNREACH_REMOTE
        assert vpc_counters(running["card-a"], "efa_0")["revoked"] == 1
        exchange(bystander, tenants["blue", RED], number=3, ah=other_ah)  # nothing of it was touched
        red["ingress"] = [{"protocol": "all", "group": "efa"}]
        control_plane.push()
        exchange(left, right, number=7, ah=ah)
