"""Tunnel: unmodified programs through `srd tunnel`, beside the same network without it, and beside other tunnels.

In turn within each round. All encrypt but `plain_*`, TCP and MPTCP; TCP's congestion control is cubic everywhere.

Over a veth pair with segmentation offload, MTU 9000: one iperf3 flow by kernel TCP, through `srd tunnel`, through it
with `--plain` and with `--busy-poll`, through wireguard-go and through OpenVPN. `cpu_s_per_gb` is the processor time of
iperf3 and of the tunnel's processes, user and system, both ends; `peak_rss_bytes` of the tunnel's, both ends.
`tunnel_over_tcp_ratio` and `tunnel_over_vpn_ratio` are goodputs, the latter over the faster of the two VPNs.
`ping_added_ms`: the median round trip on the idle tunnel less that without. `connections`: of 1,000 that are open at
once through the tunnel, those whose bytes came back right.

Over the reference fabric (four spines of 250 Mbit/s): one TCP connection with bulk data. `one_flow_speedup`: through
the tunnel over without; `one_flow_speedup_loss`: both with 1 % loss at each spine. `stall_ms`: the longest time without
data from the moment when a spine drops everything; plain TCP's connection is over the spine that dies.
`p999_ratio`: p99.9 of redis's GET beside four bulk flows, through the tunnel over without. Without, the bulk flows have
a spine each, and each of redis's 16 connections the one that chance gives it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final

from netns.lab.lab import Lab
from netns.topology.model import reference
from scripts.benches.cases.tail import has_mptcp
from scripts.benches.outcome import Figures, Round, Wanted, over
from scripts.benches.reference_fabric import RECEIVER, SENDER
from scripts.benches.tunnel import redis
from scripts.benches.tunnel.carriers import CarrierUsage, openvpn, srd_tunnel, wireguard_go
from scripts.benches.tunnel.fabric import dead, loss, uplink_bytes
from scripts.benches.tunnel.streams import OMIT_S, WORKER, Sockets, stream
from scripts.benches.veth import iperf
from scripts.harness.client_server import run_both
from scripts.harness.drops import no_drops, require_no_relay_drops
from scripts.harness.errors import BenchError
from scripts.harness.needs import EVERYTHING, Need, lacks
from scripts.harness.perf import START_S
from scripts.harness.two_hosts import TwoHosts, veth_pair
from scripts.harness.waiting import wait_until
from scripts.harness.worker import worker
from srd.perf.tcp_socket import CUBIC

WANTED: Final = (
    Wanted("tunnel_over_tcp_ratio", ">=", 0.35, over="median"),
    Wanted("tunnel_gbps", ">=", 8, over="median"),
    Wanted("tunnel_over_vpn_ratio", ">", 1, over="median"),
    Wanted("one_flow_speedup", ">=", 3, over="median"),
    Wanted("one_flow_speedup_loss", ">=", 4, over="median"),
    Wanted("stall_ms", "<=", 100, over="median"),
    Wanted("p999_ratio", "<=", 0.5, over="median"),
    Wanted("ping_added_ms", "<=", 0.3, over="median"),
    Wanted("connections", ">=", 1000),
)
NEEDS: Final = (
    Need("ping", EVERYTHING),  # which also shows that a tunnel is up
    Need("iperf3", ("tunnel_over_tcp_ratio", "tunnel_gbps", "tunnel_over_vpn_ratio")),
    Need("wireguard-go", ("tunnel_over_vpn_ratio",)),
    Need("openvpn", ("tunnel_over_vpn_ratio",)),
    Need("redis-server", ("p999_ratio",)),
    Need("redis-benchmark", ("p999_ratio",)),
)
MTU: Final = 9000
SECONDS: Final = 3.0
"""Of each flow that counts."""
PINGS: Final = 100
CONNECTIONS: Final = 1000
CONNECTIONS_BOUND_S: Final = 90.0
LOSS_PERCENT: Final = 1.0
BEFORE_FAULT_S: Final = 1.5
AFTER_FAULT_S: Final = 3.0
STREAM_BYTES: Final = 1_000_000
"""A stream has begun when so much has left the sender's switch: more than what else is on the wire."""
REQUESTS: Final = 15_000
BULK_S: Final = 90.0
"""At most of the bulk flows beside redis, which end with it."""
VPNS: Final = {"wireguard-go": wireguard_go, "openvpn": openvpn}
OVER_TCP: Final = {
    "tunnel_over_tcp_ratio": "gbps",
    "one_flow_speedup": "one_flow_mbps",
    "one_flow_speedup_loss": "one_flow_loss_mbps",
    "p999_ratio": "redis_p999_ms",
}
OURS: Final = "tunnel"
Found = dict[str, dict[str, float]]
"""Contestant -> its figures."""


def measure(number: int, seconds: float) -> Round:
    found: Found = {}
    name = f"bench-tunnel-{os.getpid()}"
    with no_drops((), during="tunnel"), veth_pair(mtu=MTU, offload=True, name=name) as pair:
        bare(pair, found, seconds=seconds)
    with Lab.up(reference(name=name)) as lab:
        four_paths(TwoHosts.of_lab(lab, SENDER, RECEIVER), found, seconds=seconds)
        require_no_relay_drops(lab)
    ours = found.pop(OURS)
    return Round(number, ratios(ours, found) | ours | {"relay": int(lab.backend == "relay")}, found)


def ratios(ours: Figures, others: Mapping[str, Figures]) -> dict[str, float]:
    tcp = others["tcp"]
    found = over(ours, tcp, OVER_TCP)
    if "gbps" in ours:
        found["tunnel_gbps"] = ours["gbps"]
        if VPNS.keys() <= others.keys():
            found["tunnel_over_vpn_ratio"] = ours["gbps"] / max(others[name]["gbps"] for name in VPNS)
    return found | {"ping_added_ms": ours["ping_ms"] - tcp["ping_ms"]}


def bare(ends: TwoHosts, found: Found, *, seconds: float) -> None:
    found["tcp"] = {"ping_ms": ends.ping_ms(count=PINGS)} | _flow(ends, seconds=seconds)
    with srd_tunnel(ends) as inner:
        found[OURS] = {"ping_ms": inner.ping_ms(count=PINGS)} | _carried_flow(inner, seconds=seconds)
        found[OURS] |= connections(inner)
        found[OURS]["peak_rss_bytes"] = CarrierUsage.of(inner).peak_rss_bytes
    carriers = {"plain tunnel": srd_tunnel(ends, "--plain"), "busy tunnel": srd_tunnel(ends, "--busy-poll")}
    carriers |= {name: vpn(ends, mtu=MTU) for name, vpn in VPNS.items() if not lacks(name)}
    for name, carrier in carriers.items():
        with carrier as inner:
            found[name] = {"ping_ms": inner.ping_ms(count=PINGS)} | _carried_flow(inner, seconds=seconds)


def _flow(ends: TwoHosts, *, seconds: float) -> dict[str, float]:
    if lacks("iperf3"):
        return {}
    return iperf.run(ends, algorithm=CUBIC, seconds=seconds).named("{}")


def _carried_flow(inner: TwoHosts, *, seconds: float) -> dict[str, float]:
    """Measure a flow, and what the processes that carry it used for it, its start included."""
    before = CarrierUsage.of(inner)
    found = _flow(inner, seconds=seconds)
    after = CarrierUsage.of(inner)
    if found:
        carried_gb = found["gbps"] / 8 * (max(round(seconds), 1) + iperf.OMIT_S)  # about: its start is slower
        found["cpu_s_per_gb"] += (after.cpu_s - before.cpu_s) / carried_gb
    return found | {"peak_rss_bytes": after.peak_rss_bytes}


def connections(ends: TwoHosts) -> dict[str, float]:
    served, exchanged = run_both(
        ends,
        server=worker(WORKER, "connections_receive", host=ends.receiver),
        client=lambda host, port: worker(WORKER, "connections_send", host=host, port=port, count=CONNECTIONS),
        bound_s=START_S + CONNECTIONS_BOUND_S,
    )
    right = min(served["at_once"], exchanged["right"])
    return {"connections": right, "connections_seconds": exchanged["seconds"]}


def four_paths(ends: TwoHosts, found: Found, *, seconds: float) -> None:
    """Measure over the reference fabric. Raises BenchError where this kernel has no MPTCP."""
    lab, spines = ends.lab, ends.lab.topology.spines
    if not has_mptcp(lab):
        raise BenchError("this kernel has no MPTCP with a subflow over each spine (CONFIG_MPTCP)")
    pinned = [replace(ends, receiver=lab.pinned_addresses(RECEIVER)[spine]) for spine in spines]
    multipath = Sockets(mptcp=True, bind=lab.pinned_addresses(SENDER)[spines[0]])
    found["mptcp"] = one_flow(ends, multipath, seconds=seconds) | stall(ends, multipath)
    found["tcp"] |= one_flow(ends, Sockets(), seconds=seconds) | stall(pinned[0], Sockets())
    found["tcp"] |= beside_bulk(ends, pinned)
    with srd_tunnel(ends) as inner:
        found[OURS] |= one_flow(inner, Sockets(), seconds=seconds) | stall(inner, Sockets())
        found[OURS] |= beside_bulk(inner, [inner] * len(spines))


def one_flow(ends: TwoHosts, sockets: Sockets, *, seconds: float) -> dict[str, float]:
    found = {}
    for name, percent in (("one_flow_mbps", 0.0), ("one_flow_loss_mbps", LOSS_PERCENT)):
        with loss(ends.lab, percent), stream(ends, sockets, seconds=OMIT_S + seconds) as ended:
            found[name] = ended().mbps()
    return found


def stall(ends: TwoHosts, sockets: Sockets) -> dict[str, float]:
    """Let the first spine drop everything under a stream; return the longest time without data, before and after."""
    with stream(ends, sockets, seconds=OMIT_S + BEFORE_FAULT_S + AFTER_FAULT_S) as ended:
        _await_bytes(ends.lab)
        time.sleep(OMIT_S + BEFORE_FAULT_S)
        with dead(ends.lab, ends.lab.topology.spines[0]):
            failed_at = time.monotonic()
            seen = ended()
    return {
        "stall_ms": seen.longest_stall_ms(since=failed_at, until=seen.ended_at),
        "stall_before_ms": seen.longest_stall_ms(since=failed_at - BEFORE_FAULT_S, until=failed_at),
    }


def _await_bytes(lab: Lab) -> None:
    before = sum(uplink_bytes(lab).values())
    wait_until(
        lambda: sum(uplink_bytes(lab).values()) - before >= STREAM_BYTES,
        within_s=START_S,
        missing="there was no stream",
    )


def beside_bulk(ends: TwoHosts, bulk: Sequence[TwoHosts]) -> dict[str, float]:
    """Measure redis beside bulk flows; return its latencies, and what all together sent; nothing without redis."""
    if lacks("redis-server") or lacks("redis-benchmark"):
        return {}
    with ExitStack() as stack:
        for each in bulk:
            stack.enter_context(stream(each, Sockets(), seconds=BULK_S))
        _await_bytes(ends.lab)
        time.sleep(OMIT_S)
        before, began_at = sum(uplink_bytes(ends.lab).values()), time.monotonic()
        found = redis.latencies(ends, requests=REQUESTS)
        sent_bytes, seconds = sum(uplink_bytes(ends.lab).values()) - before, time.monotonic() - began_at
        if seconds > BULK_S - OMIT_S:
            raise BenchError(f"redis took {seconds:.0f} s, longer than the bulk flows beside it")
    return found | {"bulk_mbps": 8e-6 * sent_bytes / seconds}
