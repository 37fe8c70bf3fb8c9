"""Python: compared with aioquic (QUIC), an alternative transport for Python programs, in the same transfer.

One flow over a veth pair with segmentation offload, encrypted by both. QUIC's datagrams are as long as the link
allows, as aioquic is slower with its default of 1,200 bytes. `aioquic_ratio`:
SRD's goodput over aioquic's at MTU 9000, where aioquic is fastest; `aioquic_ratio_mtu1500`: on an ordinary link. Both
call the AEAD for each packet, which bounds the ratio: 7.6 was measured, and 50 would be more than plain text moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER, ours_flow
from scripts.benches.outcome import Round, Wanted
from scripts.harness.client_server import python, run_both
from scripts.harness.drops import Drops
from scripts.harness.needs import EVERYTHING, Need, lacks_library
from scripts.harness.veth_pair import VethPair, veth_pair

WANTED: Final = (Wanted("aioquic_ratio", ">=", 5, over="median"),)
NEEDS: Final = (Need("aioquic", EVERYTHING, lacks_library),)
SECONDS: Final = 2.0
SUFFIXES: Final = {9000: "", 1500: "_mtu1500"}
"""MTU, and the suffix of its figures."""


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Make `count` rounds."""
    for number in range(count):
        ours, theirs = dict[str, float](), dict[str, float]()
        for mtu, suffix in SUFFIXES.items():
            with veth_pair(mtu=mtu, offload=True) as two:
                before = Drops.read(two.namespaces)
                ours_gbps = ours_flow(two, seconds=seconds, plain=False).gbps
                theirs_gbps = aioquic_gbps(two, mtu=mtu, seconds=seconds)
                Drops.read(two.namespaces).require_none_since(before, during="ours and aioquic")
            ours[f"payload_gbps{suffix}"] = ours_gbps
            ours[f"aioquic_ratio{suffix}"] = ours_gbps / theirs_gbps
            theirs[f"payload_gbps{suffix}"] = theirs_gbps
        yield Round(number + 1, ours, {"aioquic": theirs})


def aioquic_gbps(two: VethPair, *, mtu: int, seconds: float) -> float:
    """Run the flow of aioquic; return its goodput."""
    _, sent = run_both(
        two,
        server=python(WORKER, "quic-receive", two.receiver, "--mtu", str(mtu)),
        client=lambda host, port: python(
            WORKER, "quic-send", host, str(port), "--mtu", str(mtu), "--seconds", str(seconds)
        ),
        bound_s=START_S + 5 * seconds,
    )
    return float(8 * sent["bytes"] / sent["seconds"] / 1e9)
