"""Draws the scenario of a seed.

Each fault occurs in some of the scenarios only, so that its absence and all combinations occur.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeVar

from scripts.benches.torture.plans import (
    GIB,
    KIB,
    MIB,
    SLOTS,
    AttackerPlan,
    EndpointPlan,
    FaultKind,
    FilesPlan,
    Net,
    NetworkPlan,
    ReceiverPlan,
    RequestKind,
    SenderPlan,
    TimedFault,
    TortureScenario,
)

IP_UDP_BYTES: Final = 28
MIN_DATAGRAM, MAX_DATAGRAM = 576, 65_507
GIANT_NEEDS_BYTES: Final = 6 * GIB
"""Free memory required for a message of 1 GiB: its source, its target, and the rest of the machine."""
MTUS: Final = (604, 1000, 1280, 1500, 1500, 4000, 9000, 9000, 65_535)
FORGED: Final = ("noise", "control", "data", "edge", "mutated")
"""Kinds of packets of scripts/harness/forge.py; `mutated` ones were captured before."""
ATTACKS: Final = ("noise", "control", "data", "edge", "hello", "handshake", "reset", "partial", "empty", "icmp")
"""Kinds of packets that attackers send: see `attacker`."""
LIE: Final = "lie"
"""The kind of an attacker that was let in: authentic packets that lie (`scripts.harness.liar`)."""

FAULT_FREE_REQUEST_S: Final = 30.0
"""Timeout of a request that must succeed: an interpreted receiver may have 20,000 packets queued."""
GIANT_REQUEST_S: Final = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Resources and privileges of this machine that scenarios depend on."""

    namespaces: bool = False
    """Root: namespaces, time namespaces and raw sockets."""
    compiled: bool = False
    giant: bool = False


def scenario(seed: int, *, capabilities: Capabilities, seconds: float) -> TortureScenario:
    """Draw the scenario of `seed`; traffic lasts `seconds`. Draws do not depend on `capabilities`; their use does."""
    rng = Random(f"torture/{seed}")  # noqa: S311 - reproducible, not secret
    net = _choose(rng, {Net.LOOPBACK: 5, Net.ROUTED: 3, Net.RELAY: 2})
    count = rng.randint(2, 5)
    network = _network(rng, net if capabilities.namespaces else Net.LOOPBACK, count)
    common = replace(_common(rng), security=_security(seed))
    endpoints = [_endpoint(rng, common, capabilities=capabilities, network=network) for _ in range(count + 1)]
    receiver = _receiver(rng, endpoints[0], count=count, seconds=seconds)
    senders = tuple(_sender(rng, each, longest=receiver.endpoint.max_message_bytes) for each in endpoints[1:])
    attackers = tuple(_attackers(rng, common, seconds=seconds, raw=capabilities.namespaces))
    attackers += tuple(_liars(seed, common, seconds=seconds))
    events = tuple(_events(rng, network, count=count, seconds=seconds))
    if rng.random() < 0.015 and capabilities.giant:
        return _giant(TortureScenario(seed, seconds, network, receiver, senders[:2], attackers))
    if rng.random() < 0.08:
        return _files(rng, TortureScenario(seed, seconds, network, receiver, senders[:1], attackers))
    plain = TortureScenario(seed, seconds, network, receiver, senders, attackers, events)
    return _with_timeout(plain, request_timeout_s=FAULT_FREE_REQUEST_S) if plain.fault_free else plain


def _with_timeout(plain: TortureScenario, *, request_timeout_s: float) -> TortureScenario:
    senders = tuple(
        replace(each, endpoint=replace(each.endpoint, request_timeout_s=request_timeout_s)) for each in plain.senders
    )
    endpoint = replace(plain.receiver.endpoint, request_timeout_s=request_timeout_s)
    return replace(plain, receiver=replace(plain.receiver, endpoint=endpoint), senders=senders)


def _choose(rng: Random, weights: dict[T, float]) -> T:
    return rng.choices(list(weights), list(weights.values()))[0]


def _maybe(rng: Random, chance: float, value: T, otherwise: T) -> T:
    return value if rng.random() < chance else otherwise


def _network(rng: Random, net: Net, count: int) -> NetworkPlan:
    hosts = range(count + 1)
    if net is Net.LOOPBACK:
        return NetworkPlan(net)
    offloads = {host: rng.random() < 0.6 for host in hosts}
    if net is Net.ROUTED:
        alike = rng.choice((0, 1500, 9000))
        return NetworkPlan(net, {host: alike or rng.choice(MTUS) for host in hosts}, offloads)
    shape: dict[str, str | int] = {
        "delay": f"{rng.choice((50, 500, 2000))}us {rng.choice((10, 200, 1000))}us",
        "limit": rng.choice((100, 1000)),
    }
    if rng.random() < 0.6:
        shape["loss"] = rng.choice(("0.1%", "1%", "5%", "gemodel 1% 20%"))
    if rng.random() < 0.4:
        shape["duplicate"] = f"{rng.choice((0.5, 2, 10))}%"
    if rng.random() < 0.4:
        shape["corrupt"] = f"{rng.choice((0.1, 1, 3))}%"
    if rng.random() < 0.4:
        shape["reorder"] = f"{rng.choice((1, 10, 25))}%"
    return NetworkPlan(net, {host: rng.choice((1500, 9000)) for host in hosts}, offloads, shape)


# -- endpoints -----------------------------------------------------------------------------------------------------


def _security(seed: int) -> str:
    """Draw the security; from numbers of its own, so that all else of a seed is the same for each."""
    rng = Random(f"torture/{seed}/security")  # noqa: S311 - reproducible, not secret
    return rng.choice(("keys", "keys", "psk", "plain"))


def _common(rng: Random) -> EndpointPlan:
    return EndpointPlan(
        first_psn=_maybe(rng, 0.3, (1 << rng.choice((31, 32, 63))) - rng.randint(1, 3000), 0),
        request_timeout_s=rng.choice((2.0, 4.0, 6.0)),
        unresponsive_after_s=rng.choice((1.0, 1.0, 3.0)),
    )


def _datagram(rng: Random) -> int:
    """Draw a datagram size: often at a boundary, or next to one."""
    size = rng.choice(
        (
            8972, 8972, 1472, 1472, 576, 577, rng.randint(578, 1022), 1023, 1024, 1025, rng.randint(1026, 1500),
            rng.randint(1501, 9000), 4000, 16_000, 32_753, 32_754, 65_507, rng.randint(9001, 65_507),
        )
    )  # fmt: skip
    return min(max(size, MIN_DATAGRAM), MAX_DATAGRAM)


def _endpoint(rng: Random, common: EndpointPlan, *, capabilities: Capabilities, network: NetworkPlan) -> EndpointPlan:
    window = rng.choice((256 * KIB, 1 * MIB, 8 * MIB, 32 * MIB))
    plan = replace(
        common,
        datagram_bytes=_datagram(rng) if network.net is Net.LOOPBACK or rng.random() < 0.3 else MAX_DATAGRAM,
        paths=rng.choice((1, 2, 4, 8, 32)),
        window_packets=rng.choice((64, 256, 4096, 4096)),
        receive_window_bytes=window,
        max_message_bytes=min(window, rng.choice((64 * KIB, 512 * KIB, 4 * MIB, 16 * MIB))),
        chunk_bytes=rng.choice((128 * KIB, 256 * KIB, 512 * KIB)),
        rnr_retry=rng.choice((0, 2, 7, 7, 7)),
        busy_poll=rng.random() < 0.08,
        compiled=rng.random() < 0.6 and capabilities.compiled,
        uvloop=rng.random() < 0.6,
        gso=rng.random() < 0.8,
        gro=rng.random() < 0.85,
        first_message=_maybe(rng, 0.3, (1 << 32) - rng.randint(1, 2000), 0),
        first_sequence=_maybe(rng, 0.3, (1 << 32) - rng.randint(1, 500), 0),
        clock_wraps_after_s=_maybe(rng, 0.2, rng.uniform(0.5, 4.0), None) if capabilities.namespaces else None,
    )
    return with_region(plan, factor=rng.choice((1.0, 1.0, 2.0, 8.0 if window <= MIB else 1.0)))


def with_region(plan: EndpointPlan, *, factor: float) -> EndpointPlan:
    least = (SLOTS + 1) * plan.chunk_bytes + SLOTS * 64 * KIB + 2 * plan.receive_window_bytes
    region = max(int(least * factor), 16 * plan.chunk_bytes)
    return replace(plan, region_bytes=region)


def _sender(rng: Random, endpoint: EndpointPlan, *, longest: int) -> SenderPlan:
    weights: dict[RequestKind, float] = {
        kind: rng.choice((0, 1, 1, 3)) for kind in (RequestKind.SEND, RequestKind.WRITE, RequestKind.READ)
    }
    weights[RequestKind.BATCH] = rng.choice((0, 0.3, 1))
    weights[RequestKind.LENT] = rng.choice((0, 0.05))
    weights[RequestKind.SEND] += 0.1
    return SenderPlan(
        endpoint,
        weights=weights,
        longest_bytes=min(
            longest, endpoint.max_message_bytes, rng.choice((2 * KIB, 64 * KIB, 1 * MIB, 4 * MIB, 16 * MIB))
        ),
        outstanding=rng.choice((1, 4, 16, 64)),
        small=rng.choice((0.1, 0.4, 0.9)),
        cancelled=_maybe(rng, 0.3, rng.choice((0.02, 0.2)), 0.0),
        flawed=_maybe(rng, 0.3, 0.05, 0.0),
        pause_s=_maybe(rng, 0.3, rng.choice((0.001, 0.01)), 0.0),
        reconnect_after_s=_maybe(rng, 0.3, rng.uniform(0.2, 2.0), None),
        drains=rng.random() < 0.6,
    )


def _receiver(rng: Random, endpoint: EndpointPlan, *, count: int, seconds: float) -> ReceiverPlan:
    senders = range(1, count + 1)
    bound = tuple(worker for worker in senders if rng.random() < 0.5) if rng.random() < 0.35 else ()
    return ReceiverPlan(
        endpoint,
        pause_s=_maybe(rng, 0.25, rng.choice((0.001, 0.02)), 0.0),
        hold_s=(hold_s := _maybe(rng, 0.35, rng.choice((0.01, 0.2, 1.0)), 0.0)),
        hold_bytes=int(endpoint.receive_window_bytes * rng.choice((0.25, 1.0, 3.0))) if hold_s else 0,
        returns=rng.choice(("release", "tokens")),
        bound=bound,
        unbind_at_s=_maybe(rng, 0.3, rng.uniform(0.3, 0.9) * seconds, None) if bound else None,
        replies=_maybe(rng, 0.4, rng.choice((0.05, 0.5)), 0.0),
        withdraw_at_s={worker: rng.uniform(0.1, 0.9) * seconds for worker in senders if rng.random() < 0.1},
        close_at_s={worker: rng.uniform(0.1, 0.9) * seconds for worker in senders if rng.random() < 0.07},
    )


# -- faults --------------------------------------------------------------------------------------------------------


def _attackers(rng: Random, common: EndpointPlan, *, seconds: float, raw: bool) -> list[AttackerPlan]:
    if rng.random() < 0.45:
        return []
    available = [kind for kind in ATTACKS if raw or kind != "icmp"]
    return [
        AttackerPlan(
            packets_per_s=rng.choice((20, 200, 2000, 20_000)),
            trains=rng.choice((0.0, 0.3, 0.9)),
            kinds={kind: rng.choice((1.0, 3.0)) for kind in rng.sample(available, rng.randint(1, 6))},
            seconds=seconds,
            first_psn=common.first_psn,
            security=common.security,
        )
        for _ in range(rng.randint(1, 2))
    ]


def _liars(seed: int, common: EndpointPlan, *, seconds: float) -> list[AttackerPlan]:
    """Draw an attacker that was let in; from numbers of its own, as all else of a seed is the same without one."""
    rng = Random(f"torture/{seed}/liars")  # noqa: S311 - reproducible, not secret
    if rng.random() < 0.5:
        return []
    rate = rng.choice((200, 2000, 20_000))
    return [AttackerPlan(rate, 0.0, {LIE: 1.0}, seconds, first_psn=common.first_psn, security=common.security)]


def _events(rng: Random, network: NetworkPlan, *, count: int, seconds: float) -> list[TimedFault]:
    events: list[TimedFault] = []
    if rng.random() < 0.5:
        return events
    kinds = {FaultKind.KILL: 2.0, FaultKind.STOP: 3.0}
    if network.net is not Net.LOOPBACK:
        kinds |= {FaultKind.MTU: 2.0, FaultKind.FLAP: 1.0, FaultKind.BLACKHOLE: 1.0}
    for _ in range(rng.randint(1, 3)):
        what = _choose(rng, kinds)
        at_s = rng.uniform(0.05, 0.8) * seconds
        events.append(
            TimedFault(
                at_s,
                what,
                rng.randint(0, count) if rng.random() < 0.7 else 0,
                rng.choice((0.05, 0.3, 0.8, 1.5, 2.5)),
                value=rng.choice((604, 1000, 1400, 1500)),
            )
        )
    return sorted(events, key=lambda event: event.at_s)


# -- other scenarios -----------------------------------------------------------------------------------------------


def _giant(plain: TortureScenario) -> TortureScenario:
    """Add a message of 1 GiB to the others, with a longer timeout."""
    plain = _with_timeout(plain, request_timeout_s=GIANT_REQUEST_S)
    first, *senders = plain.senders
    giant = replace(
        first,
        endpoint=replace(first.endpoint, window_packets=4096, datagram_bytes=MAX_DATAGRAM),
        giant_bytes=GIB,
        reconnect_after_s=None,
    )
    present = range(1, len(senders) + 2)
    receiver = replace(
        plain.receiver,
        bound=tuple(worker for worker in plain.receiver.bound if worker in present),
        withdraw_at_s={worker: at_s for worker, at_s in plain.receiver.withdraw_at_s.items() if worker in present},
        close_at_s={worker: at_s for worker, at_s in plain.receiver.close_at_s.items() if worker in present},
    )
    network = NetworkPlan(Net.LOOPBACK)
    return replace(plain, network=network, receiver=receiver, senders=(giant, *senders), attackers=())


def _files(rng: Random, plain: TortureScenario) -> TortureScenario:
    """Replace messages by files; for some receivers a chunk is too long, so that its request fails."""
    longest = rng.choice((64 * KIB, 512 * KIB, 4 * MIB, 4 * MIB))
    endpoint = replace(plain.receiver.endpoint, max_message_bytes=longest, receive_window_bytes=8 * MIB)
    files = FilesPlan(
        sizes=tuple(rng.choice((0, 1, MIB - 1, MIB, MIB + 1, rng.randint(2, 24 * MIB))) for _ in range(3)),
        cancel_after_s=_maybe(rng, 0.3, rng.uniform(0.01, 0.5), None),
        mapped=rng.random() < 0.3 and plain.receiver.endpoint.security == "plain",
    )
    (sender,) = plain.senders
    sending = replace(sender.endpoint, max_message_bytes=4 * MIB, receive_window_bytes=8 * MIB)
    return replace(
        plain,
        receiver=ReceiverPlan(with_region(endpoint, factor=1.0)),
        senders=(replace(sender, endpoint=with_region(sending, factor=1.0)),),
        files=files,
    )
