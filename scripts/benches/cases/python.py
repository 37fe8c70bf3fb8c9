"""Python: the transport that Python programs would take else: aioquic (QUIC) doing the same transfer.

One flow over a veth pair with segmentation offload, MTU 9000, and QUIC datagrams as long as the link takes: with
the 1,200 bytes that aioquic begins with it is slower. QUIC encrypts, we do not (yet): that is part of the ratio.
`aioquic_ratio`: our payload a second over aioquic's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from scripts.benches.cases.clean import START_S, WORKER, ours_flow
from scripts.benches.outcome import Round, Wanted
from scripts.benches.veth.drops import Drops
from scripts.benches.veth.roles import meet, python
from scripts.benches.veth.wire import Wire, wire

WANTED: Final = (Wanted("aioquic_ratio", ">=", 50, over="median"),)
SECONDS: Final = 2.0
MTU: Final = 9000


def rounds(count: int, seconds: float) -> Iterator[Round]:
    """Make `count` rounds."""
    with wire(mtu=MTU, offload=True) as two:
        for number in range(count):
            before = Drops.read(two.namespaces)
            ours_gbps = ours_flow(two, seconds=seconds).gbps
            theirs_gbps = _aioquic_gbps(two, seconds=seconds)
            Drops.read(two.namespaces).require_none_since(before, during="ours and aioquic")
            ours = {"payload_gbps": ours_gbps, "aioquic_ratio": ours_gbps / theirs_gbps}
            yield Round(number + 1, ours, {"aioquic": {"payload_gbps": theirs_gbps}})


def _aioquic_gbps(two: Wire, *, seconds: float) -> float:
    mtu = str(MTU)
    _, sent = meet(
        two,
        server=python(WORKER, "quic-receive", two.receiver, "--mtu", mtu),
        client=lambda host, port: python(WORKER, "quic-send", host, str(port), "--mtu", mtu, "--seconds", str(seconds)),
        bound_s=START_S + 5 * seconds,
    )
    return float(8 * sent["bytes"] / sent["seconds"] / 1e9)
