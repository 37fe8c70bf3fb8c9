"""Which packets an interface of kind ENA Express takes: no card, no network, no interface."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nitro_emu.express.config import ExpressConfig, InterfaceFields
from nitro_emu.express.destinations import PACKETS_KEY, ExpressDestinations
from nitro_emu.express.function import ExpressFunction
from nitro_emu.peers.attestation import PeerAttestation
from nitro_emu.peers.incoming import IncomingPeer
from nitro_emu.peers.introduction import INTRODUCTION_KEY
from nitro_emu.peers.vf_trust import VfTrust
from nitro_emu.trust.alarms import Alarms
from srd.proto.wire.status import Status
from srd.secure.config import Plain
from srd.tunnel.frames import FRAME_BYTES
from srd.tunnel.packets import parse_untrusted
from tests.nitro_emu.peers.test_tenancy import BLUE, RED, Rig, gid, packets_vf
from tests.srd.tunnel.inner import ipv4, ipv6, tcp

SOURCE, STRANGER = 7, 8
"""Peers: RED's, which was let in, and one that was not."""


class FakeSources:
    def __init__(self) -> None:
        self.known = {SOURCE: IncomingPeer("10.0.1.1", gid=gid(RED))}

    def named(self, peer: int) -> IncomingPeer | None:
        return self.known.get(peer)

    def admit_introduction(self, peer: int, *, length: int, count: int) -> Status | None:
        assert (peer, length, count) == (STRANGER, 100, 1)
        return None


class Function:
    """BLUE's, with a mapping in which both may send each other anything."""

    def __init__(self, *, version: int = 1) -> None:
        """`version`: of the mapping; 0: there is none."""
        rig = Rig()
        if version:
            rig.push(version)
        config = ExpressConfig(
            name="ena_0",
            kind="ena-express",
            address="10.0.1.2",
            vpc="red",
            private_address=BLUE,
            interface=InterfaceFields(subnet="172.31.0.0/16"),
        )
        trust = VfTrust(
            security=Plain(),
            tenancy=packets_vf(rig),
            attestation=PeerAttestation(),
            alarms=Alarms(),
            check_egress=lambda _host: None,
            answers=lambda _host: True,
        )
        self.vf = ExpressFunction(config, trust=trust, is_shared=False, kept=None, on_failure=lambda _reason: None)
        parts: Any = (SimpleNamespace(now=0.0), FakeSources())
        self.vf._gateway, self.vf.sources = parts

    def gets(self, packet: Any, *, peer: int = SOURCE) -> str | None:
        member: Any = SimpleNamespace(peer=SimpleNamespace(number=peer))
        raw = bytes(packet)
        return self.vf.refusal_untrusted(member, parse_untrusted(raw), raw)

    def sends(self, packet: Any) -> Any:
        raw = bytes(packet)
        return self.vf.member_for(parse_untrusted(raw), memoryview(bytes(FRAME_BYTES) + raw), now=0.0)


def test_packet_of_a_peer__is_from_its_address_and_for_this_interface() -> None:
    function = Function()
    assert function.gets(ipv4(src=RED, dst=BLUE) / tcp(flags="S")) is None
    assert function.gets(ipv4(src=RED, dst=BLUE) / tcp(flags="S"), peer=STRANGER) == "spoofed_source"
    for source in ("172.31.0.9", BLUE, "10.0.1.1"):
        assert function.gets(ipv4(src=source, dst=BLUE) / tcp(flags="S")) == "spoofed_source"
    for destination in ("172.31.0.9", RED, "224.0.0.1"):
        assert function.gets(ipv4(src=RED, dst=destination) / tcp(flags="S")) == "other_destination"
    assert function.gets(ipv6() / tcp()) == "spoofed_source"


def test_packet_of_the_tenant__is_from_the_interface_s_address() -> None:
    function = Function()
    for source in ("172.31.0.9", RED, "10.0.1.2"):
        assert function.sends(ipv4(src=source, dst=RED) / tcp(flags="S")) == "spoofed_source"
    assert function.sends(ipv6() / tcp()) == "spoofed_source"
    assert function.sends(ipv4(src=BLUE, dst="172.31.0.9") / tcp(flags="S")) == "no_interface"
    assert function.sends(ipv4(src=BLUE, dst="172.31.255.255") / tcp(flags="S")) == "no_interface"
    assert len(function.vf.flows) == 0


def test_inbox__takes_packets_of_peers_that_were_let_in_and_nothing_else() -> None:
    sources: Any = FakeSources()
    destinations = ExpressDestinations(sources)
    assert destinations.admit(INTRODUCTION_KEY, peer=STRANGER, length=100, count=1) is None
    assert destinations.admit(PACKETS_KEY, peer=SOURCE, length=100, count=3) is None
    refused = Status.REMOTE_ERROR_BAD_DEST_QPN
    assert destinations.admit(PACKETS_KEY, peer=STRANGER, length=100, count=3) is refused
    assert destinations.admit(1 << 48, peer=SOURCE, length=100, count=1) is refused, "a queue pair's"
    assert destinations.admit_write(PACKETS_KEY, peer=SOURCE) is refused


def test_packets_before_the_first_mapping__do_not_end_the_flows_that_an_update_has_kept() -> None:
    before = Function()
    assert before.gets(ipv4(src=RED, dst=BLUE) / tcp(flags="S")) is None
    after = Function(version=0)
    after.vf.flows.restore(before.vf.flows.saved(now=0.0), now=0.0)
    answer = ipv4(src=BLUE, dst=RED) / tcp(sport=80, dport=40000, flags="SA")
    assert after.sends(answer) == "no_mapping"
    assert len(after.vf.flows) == 1
