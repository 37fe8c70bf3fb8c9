"""Bounds that are known to be missed, and their owners: the issues that are to meet them, by title.

`scripts/bench` names the owner beside such a bound. One that is missed and that no issue owns promises nothing: it is
changed to what holds, with the reason in its case's docstring, or removed. So is an entry here when the bound is met.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LIGHT_PATH: Final = (
    "The light path: a message for a fifth of the processor time, and a way that one can read in one sitting"
)
VOLUME: Final = "A volume over SRD: storage latency, the Nitro card's second promise"

OWNERS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    LIGHT_PATH: {
        "clean": (
            "tcp_ratio_mtu9000", "tcp_ratio_mtu1500", "tcp_ratio_mtu9000_nogso", "cpu_per_gb_ratio_mtu9000",
        ),
        "latency": ("p50_64k_ratio", "p50_1m_ratio", "p50_4m_ratio", "loaded_bulk_ratio"),
        "path": ("cpu_ratio_64b", "p50_ratio_64b"),
        "sizes": ("worst_ratio",),
        "tail": ("p999_fabric_ratio",),
        "secure": ("secure_over_plain_ratio_mtu9000", "secure_over_plain_ratio_mtu1500", "p50_64b_added_us"),
        "peers": ("cost_ratio_10000",),
        "devmem": ("classic_ratio", "cpu_per_gb_ratio"),
        "card": ("p50_over_inprocess_ratio",),
        "torch": ("clean_over_gloo_ratio", "lossy_over_gloo_ratio"),
        "tunnel": ("tunnel_over_tcp_ratio", "tunnel_gbps", "ping_added_ms"),
    },
    VOLUME: {"volume": ("read_p50_over_nbdkit_ratio", "read_p999_lossy_over_tcp_ratio")},
}  # fmt: skip
"""Title -> case -> figures that a run of 2026-11-25 or later missed on the reference machine (docs/benchmarks/)."""


def owner_of(case: str, figure: str) -> str | None:
    """Return the title of the issue that owns a bound; None if no issue does."""
    return next((title for title, cases in OWNERS.items() if figure in cases.get(case, ())), None)
