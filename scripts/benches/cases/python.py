"""Python: compared with aioquic (QUIC), an alternative transport for Python programs, in the same transfer.

One flow over a veth pair with segmentation offload, encrypted by both. QUIC's datagrams are as long as the link
allows, as aioquic is slower with its default of 1,200 bytes. `aioquic_ratio`:
SRD's goodput over aioquic's at MTU 9000, where aioquic is fastest; `aioquic_ratio_mtu1500`: on an ordinary link. Both
call the AEAD for each packet, which bounds the ratio: 7.6 was measured, and 50 would be more than plain text moves.
"""

from __future__ import annotations

from typing import Final

from scripts.benches.outcome import Round, Wanted
from scripts.benches.veth import iperf
from scripts.harness.client_server import run_both
from scripts.harness.drops import no_drops
from scripts.harness.needs import EVERYTHING, Need, lacks_library
from scripts.harness.perf import START_S
from scripts.harness.two_hosts import TwoHosts, veth_pair
from scripts.harness.worker import worker

WANTED: Final = (Wanted("aioquic_ratio", ">=", 5, over="median"),)
NEEDS: Final = (Need("aioquic", EVERYTHING, lacks_library),)
SECONDS: Final = 2.0
WORKER: Final = "scripts.benches.veth.worker.quic"
SUFFIXES: Final = {9000: "", 1500: "_mtu1500"}
"""MTU, and the suffix of its figures."""


def measure(number: int, seconds: float) -> Round:
    ours, theirs = dict[str, float](), dict[str, float]()
    for mtu, suffix in SUFFIXES.items():
        with veth_pair(mtu=mtu, offload=True) as two, no_drops(two.namespaces, during="ours and aioquic"):
            ours_gbps = iperf.ours(two, seconds=seconds, plain=False).gbps
            theirs_gbps = aioquic_gbps(two, mtu=mtu, seconds=seconds)
        ours[f"payload_gbps{suffix}"] = ours_gbps
        ours[f"aioquic_ratio{suffix}"] = ours_gbps / theirs_gbps
        theirs[f"payload_gbps{suffix}"] = theirs_gbps
    return Round(number, ours, {"aioquic": theirs})


def aioquic_gbps(two: TwoHosts, *, mtu: int, seconds: float) -> float:
    _, sent = run_both(
        two,
        server=worker(WORKER, "receive", host=two.receiver, mtu=mtu),
        client=lambda host, port: worker(WORKER, "send", host=host, port=port, mtu=mtu, seconds=seconds),
        bound_s=START_S + 5 * seconds,
    )
    return float(8 * sent["bytes"] / sent["seconds"] / 1e9)
