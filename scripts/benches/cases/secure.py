"""Secure: encrypted peers compared with peers in plain text, aioquic (QUIC) and WireGuard, over a veth pair.

Bulk: one flow with segmentation offload, MTU 9000 and 1500, plain and encrypted in turn (`srd perf`);
`secure_over_plain_ratio_*` is the ratio of their goodputs, `aioquic_ratio` that of the encrypted flow and aioquic's at
MTU 1500, `wireguard_ratio_*` that of the encrypted flow and kernel TCP (cubic) through wireguard-go. Latency:
`p50_64b_added_us` is what encryption adds to the median round trip of a message of 64 B.
Handshakes: `handshakes_per_s` of one initiator and one responder, a process each; `handshake_cost_us` and
`hello_cost_us` are the responder's CPU time for a peer that opens and closes, and for a HELLO without a cookie.
"""

from __future__ import annotations

from typing import Final

from scripts.benches.cases.latency import SMALL_SIZES, round_trips
from scripts.benches.cases.python import aioquic_gbps
from scripts.benches.outcome import Round, Wanted, in_turn, over
from scripts.benches.veth import iperf
from scripts.benches.veth.wireguard import tunnel
from scripts.harness.client_server import run_both
from scripts.harness.drops import no_drops
from scripts.harness.needs import Need, lacks, lacks_library
from scripts.harness.perf import START_S
from scripts.harness.two_hosts import TwoHosts, veth_pair
from scripts.harness.worker import worker
from srd.perf.tcp_socket import CUBIC

WANTED: Final = (
    Wanted("secure_over_plain_ratio_mtu9000", ">=", 0.6, over="median"),
    Wanted("secure_over_plain_ratio_mtu1500", ">=", 0.4, over="median"),
    Wanted("aioquic_ratio", ">=", 20, over="median"),
    Wanted("p50_64b_added_us", "<=", 10, over="median"),
)
NEEDS: Final = (
    Need("aioquic", ("aioquic_ratio",), lacks_library),
    Need("wireguard-go", ("wireguard_ratio_*",)),
    Need("iperf3", ("wireguard_ratio_*",)),
)
SECONDS: Final = 2.0
MTUS: Final = (9000, 1500)
WORKER: Final = "scripts.benches.veth.worker.handshakes"
OURS, PLAIN, AIOQUIC, WIREGUARD = "ours", "plain", "aioquic", "wireguard"


def measure(number: int, seconds: float) -> Round:
    found: dict[str, dict[str, float]] = {OURS: {}, PLAIN: {}, AIOQUIC: {}, WIREGUARD: {}}
    for mtu in MTUS:
        with veth_pair(mtu=mtu, offload=True) as two:
            with no_drops(two.namespaces, during="secure"):
                for name in in_turn((OURS, PLAIN), number=number):
                    is_plain = name == PLAIN
                    found[name] |= iperf.ours(two, seconds=seconds, plain=is_plain).named(f"{{}}_mtu{mtu}")
                    if mtu == max(MTUS):
                        found[name] |= _round_trips(two, seconds=seconds, plain=is_plain)
                        found[name] |= _handshakes(two, seconds=seconds, plain=is_plain)
                if mtu == min(MTUS) and not lacks_library("aioquic"):
                    found[AIOQUIC][f"gbps_mtu{mtu}"] = aioquic_gbps(two, mtu=mtu, seconds=seconds)
            if not (lacks("wireguard-go") or lacks("iperf3")):
                with tunnel(two, mtu=mtu) as inner:  # drops at its sockets are its own
                    found[WIREGUARD][f"gbps_mtu{mtu}"] = iperf.run(inner, algorithm=CUBIC, seconds=seconds).gbps
    ours = found.pop(OURS)
    ours |= {
        **over(ours, found[PLAIN], {f"secure_over_plain_ratio_mtu{mtu}": f"gbps_mtu{mtu}" for mtu in MTUS}),
        **over(ours, found[AIOQUIC], {"aioquic_ratio": f"gbps_mtu{min(MTUS)}"}),
        **over(ours, found[WIREGUARD], {f"wireguard_ratio_mtu{mtu}": f"gbps_mtu{mtu}" for mtu in MTUS}),
        "p50_64b_added_us": ours["p50_64b_us"] - found[PLAIN]["p50_64b_us"],
    }
    return Round(number, ours, {name: figures for name, figures in found.items() if figures})


def _round_trips(two: TwoHosts, *, seconds: float, plain: bool) -> dict[str, float]:
    return round_trips(two, *(["--plain"] if plain else []), sizes=SMALL_SIZES, seconds=seconds)


def _handshakes(two: TwoHosts, *, seconds: float, plain: bool) -> dict[str, float]:
    _, measured = run_both(
        two,
        server=worker(WORKER, "receive", host=two.receiver, plain=plain),
        client=lambda host, port: worker(WORKER, "send", host=host, port=port, seconds=seconds, plain=plain),
        bound_s=START_S + seconds,
    )
    return {name: measured[name] for name in ("handshakes_per_s", "handshake_cost_us", "hello_cost_us")}
