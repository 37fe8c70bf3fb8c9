"""nitro_emu.vpc.flows: which packets belong together, and which pass."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment
from scapy.packet import Packet, Raw

from nitro_emu.vpc.flows import (
    CLOSED_S,
    CONNTRACK_EXCEEDED,
    ESTABLISHED_S,
    NO_VERSION,
    OPENING_S,
    SINGLE_S,
    STREAM_S,
    Begin,
    FlowTable,
    Tracked,
    read_untrusted,
)
from srd.tunnel.packets import InnerPacketError, parse_untrusted
from tests.srd.tunnel.inner import hostile, ipv4, ipv6, packets, tcp, udp

HERE, THERE, OTHER = "10.88.0.1", "10.88.0.2", "10.88.0.3"
REFUSED = "security_group"


class Group:
    """An interface of HERE (or its IPv6 address) with rules that a test changes: (protocol, port), None for all."""

    def __init__(self, *, egress: list[tuple[str, int | None]], ingress: list[tuple[str, int | None]], limit: int = 9):
        self.rules = {True: egress, False: ingress}
        self.version = 1
        self.now = 0.0
        self.asked: list[Begin] = []
        self.table = FlowTable(limit=limit, judge=self.judge)

    def judge(self, begin: Begin) -> str | None:
        self.asked.append(begin)
        allowed = any(
            begin.protocol == name and port in (None, begin.port) for name, port in self.rules[begin.is_outbound]
        )
        return None if allowed else REFUSED

    def change(self) -> None:
        self.version += 1

    def refusal(self, packet: Packet | bytes, *, outbound: bool) -> str | None:
        raw = bytes(packet)
        inner = parse_untrusted(raw)
        return self.table.refusal(
            read_untrusted(inner, raw),
            is_outbound=outbound,
            peer=inner.destination if outbound else inner.source,
            version=self.version,
            now=self.now,
        )

    def sends(self, packet: Packet | bytes) -> bool:
        return self.refusal(packet, outbound=True) is None

    def gets(self, packet: Packet | bytes) -> bool:
        return self.refusal(packet, outbound=False) is None


def out(layer: Packet, **fields: object) -> Packet:
    return ipv4(src=HERE, dst=THERE, **fields) / layer


def back(layer: Packet, **fields: object) -> Packet:
    return ipv4(src=THERE, dst=HERE, **fields) / layer


def answer(**fields: object) -> Packet:
    return tcp(sport=80, dport=40000, **fields)


def test_answer_passes__without_a_rule_and_nothing_else() -> None:
    group = Group(egress=[("tcp", 80)], ingress=[])
    assert not group.gets(back(answer(flags="SA"))), "nothing was asked"
    assert group.sends(out(tcp(flags="S")))
    assert group.gets(back(answer(flags="SA")))
    assert not group.gets(back(tcp(sport=81, dport=40000, flags="A"))), "another port"
    assert not group.gets(back(tcp(sport=80, dport=40001, flags="A"))), "another port here"
    assert not group.gets(ipv4(src=OTHER, dst=HERE) / answer(flags="A")), "another interface"
    assert not group.gets(back(udp(sport=80, dport=40000))), "another protocol"


@pytest.mark.parametrize("flags", ["RA", "FA"])
def test_connection_that_was_closed__is_judged_again_when_it_is_opened_again(flags: str) -> None:
    group = Group(egress=[("tcp", 80)], ingress=[])
    assert group.sends(out(tcp(flags="S")))
    assert flags == "RA" or group.sends(out(tcp(flags="FA"))), "both ends close it"
    assert group.gets(back(answer(flags=flags)))
    group.rules[True] = []
    assert group.sends(out(tcp(flags="A"))), "of the same version of the rules"
    assert not group.sends(out(tcp(flags="S")))


@pytest.mark.parametrize("request_type", [8, 13, 15, 17])
def test_icmp_reply__belongs_to_its_request(request_type: int) -> None:
    reply_type = {8: 0, 13: 14, 15: 16, 17: 18}[request_type]
    group = Group(egress=[("icmp", request_type)], ingress=[])
    assert not group.gets(back(ICMP(type=reply_type, id=7)))
    assert group.sends(out(ICMP(type=request_type, id=7)))
    assert group.gets(back(ICMP(type=reply_type, id=7)))
    assert not group.gets(back(ICMP(type=reply_type, id=8)))
    assert not group.gets(back(ICMP(type=request_type, id=7))), "a request is no answer"


def test_icmpv6_reply__belongs_to_its_request() -> None:
    group = Group(egress=[("icmpv6", 128)], ingress=[])
    there = {"src": "fd88::2", "dst": "fd88::1"}
    assert group.sends(ipv6() / ICMPv6EchoRequest(id=7))
    assert group.gets(ipv6(**there) / ICMPv6EchoReply(id=7))
    assert not group.gets(ipv6(**there) / ICMPv6EchoReply(id=8))


def test_icmp_error__passes_to_whom_it_quotes() -> None:
    group = Group(egress=[("udp", 53), ("udp", 443)], ingress=[])
    asked = bytes(out(udp(dport=53) / Raw(b"question")))
    unreachable = ICMP(type=3, code=3)
    assert not group.gets(back(unreachable / Raw(asked)))
    assert group.sends(asked)
    assert group.gets(back(unreachable / Raw(asked)))
    assert group.gets(back(unreachable / Raw(asked[:28]))), "RFC 792 quotes no more than that"
    assert not group.gets(back(unreachable / Raw(asked[:27])))
    assert not group.gets(back(unreachable / Raw(bytes(out(udp(dport=443)))))), "of another flow"
    assert not group.gets(ipv4(src=OTHER, dst=HERE) / unreachable / Raw(asked)), "of who has nothing to do with it"
    assert not group.gets(back(ICMP(type=5) / Raw(asked))), "a redirect is no such error"


def test_icmpv6_error__passes_to_whom_it_quotes() -> None:
    group = Group(egress=[("tcp", 80)], ingress=[])
    asked = bytes(ipv6() / tcp(flags="S"))
    error = ipv6(src="fd88::2", dst="fd88::1") / ICMPv6DestUnreach(code=4) / Raw(asked)
    assert not group.gets(error)
    assert group.sends(asked)
    assert group.gets(error)


def test_fragments__need_a_rule_for_all_ports() -> None:
    fragment = udp(dport=53) / Raw(bytes(64))
    group = Group(egress=[("udp", 53)], ingress=[])
    assert not group.sends(out(fragment, flags="MF"))
    group.rules[True] = [("udp", None)]
    assert group.sends(out(fragment, flags="MF"))
    assert group.sends(out(Raw(bytes(8)), proto=17, frag=9))
    assert group.gets(back(Raw(bytes(8)), proto=17, frag=9)), "fragments of the answer"
    assert not group.gets(back(udp(sport=53, dport=40000))), "which is no fragment"
    fragment6 = IPv6(src="fd88::2", dst="fd88::1") / IPv6ExtHdrFragment(m=1) / udp() / Raw(bytes(56))
    assert not group.gets(fragment6)


def test_other_protocols__are_told_by_their_number() -> None:
    group = Group(egress=[("47", None)], ingress=[])
    assert group.sends(out(Raw(bytes(8)), proto=47))
    assert group.gets(back(Raw(bytes(8)), proto=47))
    assert group.asked[-1] == Begin(is_outbound=True, peer=bytes([10, 88, 0, 2]), protocol="47", port=None)


IDLE = [
    ("tcp, not answered", [out(tcp(flags="S"))], [], OPENING_S),
    ("tcp", [out(tcp(flags="S"))], [back(answer(flags="SA"))], ESTABLISHED_S),
    ("tcp, reset", [out(tcp(flags="S"))], [back(answer(flags="RA"))], CLOSED_S),
    ("tcp, closed by both", [out(tcp(flags="S")), out(tcp(flags="FA"))], [back(answer(flags="FA"))], CLOSED_S),
    ("tcp, closed by one", [out(tcp(flags="FA"))], [back(answer(flags="A"))], ESTABLISHED_S),
    ("udp", [out(udp())], [], SINGLE_S),
    ("udp, answered", [out(udp())], [back(udp(sport=443, dport=40000))], STREAM_S),
    ("icmp", [out(ICMP(type=8))], [back(ICMP(type=0))], SINGLE_S),
]


@pytest.mark.parametrize(("there", "here", "idle_s"), [row[1:] for row in IDLE], ids=[row[0] for row in IDLE])
def test_flow__ends_after_its_idle_time(there: list[Packet], here: list[Packet], idle_s: float) -> None:
    for passes, at_s in ((True, idle_s - 0.1), (False, idle_s)):
        group = Group(egress=[("tcp", None), ("udp", None), ("icmp", None)], ingress=[])
        assert all(group.sends(packet) for packet in there)
        assert all(group.gets(packet) for packet in here)
        group.now = at_s
        probe = (
            here[-1]
            if here
            else {True: back(answer(flags="A")), False: back(udp(sport=443, dport=40000))}[
                there[0].haslayer("TCP") == 1
            ]
        )
        assert group.gets(probe) is passes


@given(st.one_of(packets, hostile))
def test_any_packet__is_read_or_refused(packet: bytes) -> None:
    try:
        inner = parse_untrusted(packet)
        read_untrusted(inner, packet[: inner.length])
    except InnerPacketError:
        return


def test_flows_of_a_process_before__are_as_many_as_fit_and_of_known_times() -> None:
    before = Group(egress=[("tcp", 80)], ingress=[])
    for port in range(1, 6):
        assert before.sends(out(tcp(sport=port, flags="S")))
    saved = before.table.saved(now=before.now)
    after = Group(egress=[], ingress=[], limit=3)
    after.table.restore([saved[0]._replace(idle_s=7.0), *saved[1:]], now=after.now)
    assert len(after.table) == 3
    after.rules[True] = [("tcp", 80)]
    assert not after.gets(back(tcp(sport=80, dport=1, flags="SA")))
    assert after.gets(back(tcp(sport=80, dport=2, flags="SA")))
    after.rules[True] = []
    assert not after.gets(back(tcp(sport=80, dport=3, flags="SA"))), "it is judged again"


# -- against a model ------------------------------------------------------------------------------------------------

_FLAGS = {"S": 2, "SA": 18, "A": 16, "FA": 17, "R": 4}


@dataclass(frozen=True)
class Step:
    """Some seconds, a change of the rules and an update of the card perhaps, and a packet."""

    after_s: int
    rules: frozenset[tuple[bool, int]] | None
    updates: bool
    outbound: bool
    protocol: int
    here: int
    there: int
    flags: str

    def packet(self) -> Tracked:
        source, destination = (b"here", b"ther") if self.outbound else (b"ther", b"here")
        ports = (self.here, self.there) if self.outbound else (self.there, self.here)
        if self.protocol == 6:
            rest = struct.pack("!HHIIBBHHH", *ports, 0, 0, 0x50, _FLAGS[self.flags], 0, 0, 0)
        else:
            rest = struct.pack("!HHHH", *ports, 8, 0)
        header = struct.pack("!IHBB4s4s", 6 << 28, len(rest), self.protocol, 64, bytes(4), bytes(4))
        packet = header[:8] + source.ljust(16, b"\0") + destination.ljust(16, b"\0") + rest
        return read_untrusted(parse_untrusted(packet), packet)


@dataclass
class Known:
    """A flow of the model."""

    ends: tuple[int, int, int]
    outbound: bool
    port: int
    version: int
    last: int
    answered: bool = False
    closed: bool = False
    fins: set[bool] = field(default_factory=set)

    @property
    def ends_at(self) -> float:
        if self.ends[0] == 17:
            return self.last + (STREAM_S if self.answered else SINGLE_S)
        if self.closed:
            return self.last + CLOSED_S
        return self.last + (ESTABLISHED_S if self.answered else OPENING_S)


@dataclass
class Model:
    """What the table does, by looking at every flow there is."""

    limit: int
    rules: frozenset[tuple[bool, int]]
    version: int = 1
    flows: list[Known] = field(default_factory=list)

    def find(self, ends: tuple[int, int, int], now: int, *, outbound: bool) -> Known | None:
        for flow in self.flows:
            if (flow.ends, flow.outbound) == (ends, outbound):
                is_allowed = flow.version == self.version or (outbound, flow.port) in self.rules
                if now < flow.ends_at and is_allowed:
                    flow.version = self.version
                    return flow
                self.flows.remove(flow)
                return None
        return None

    def update(self) -> None:
        for flow in self.flows:
            flow.version = NO_VERSION

    def refusal(self, step: Step, now: int) -> str | None:
        ends = (step.protocol, step.here, step.there)
        opens = step.protocol == 6 and step.flags == "S"
        flow = self.find(ends, now, outbound=step.outbound)
        if flow is not None and flow.closed and opens:
            self.flows.remove(flow)
            flow = None
        if flow is None and not opens:
            flow = self.find(ends, now, outbound=not step.outbound)
        if flow is None:
            port = step.there if step.outbound else step.here
            if (step.outbound, port) not in self.rules:
                return REFUSED
            if sum(now < each.ends_at for each in self.flows) >= self.limit:
                return CONNTRACK_EXCEEDED
            flow = Known(ends, step.outbound, port, self.version, now)
            self.flows.append(flow)
        flow.answered |= step.outbound is not flow.outbound
        flow.last = now
        if step.protocol == 6:
            flow.fins |= {step.outbound} if "F" in step.flags else set()
            flow.closed |= "R" in step.flags or len(flow.fins) == 2
        return None


_ports = st.integers(1, 3)
_rules = st.frozensets(st.tuples(st.booleans(), _ports))
_steps = st.builds(
    Step,
    after_s=st.sampled_from([0, 0, 0, 1, 9, 10, 29, 30, 59, 60, 179, 180, 349, 350]),
    rules=st.none() | _rules,
    updates=st.booleans(),
    outbound=st.booleans(),
    protocol=st.sampled_from([6, 17]),
    here=_ports,
    there=_ports,
    flags=st.sampled_from(sorted(_FLAGS)),
)


@given(_rules, st.lists(_steps, max_size=30), st.integers(1, 4))
def test_table__does_what_the_model_does(rules: frozenset[tuple[bool, int]], steps: list[Step], limit: int) -> None:
    model = Model(limit, rules)

    def judge(begin: Begin) -> str | None:
        return None if (begin.is_outbound, begin.port) in model.rules else REFUSED

    table = FlowTable(limit=limit, judge=judge)
    now = 0
    for step in steps:
        now += step.after_s
        if step.rules is not None:
            model.rules, model.version = step.rules, model.version + 1
        if step.updates:
            saved = table.saved(now=float(now))
            table = FlowTable(limit=limit, judge=judge)
            table.restore(saved, now=float(now))
            model.update()
        found = table.refusal(
            step.packet(), is_outbound=step.outbound, peer=b"peer", version=model.version, now=float(now)
        )
        assert found == model.refusal(step, now)
        assert len(table) <= limit
