"""What a tunnel counts. Those of ENA Express have its names and meanings (AWS, "ENA Express metrics")."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field


@dataclass(slots=True)
class Counters:
    """Totals of a tunnel, or of one of its peers. Packets are those on a wire: a super-packet counts its segments."""

    ena_srd_tx_pkts: int = 0
    """Packets sent over SRD."""
    ena_srd_eligible_tx_pkts: int = 0
    """Packets that could have been sent over SRD: those, and those that went around it while no peer answered."""
    ena_srd_rx_pkts: int = 0
    """Packets received over SRD."""
    encapsulated_tx_pkts: int = 0
    """Packets sent around SRD, in plain UDP."""
    encapsulated_rx_pkts: int = 0
    """Packets that came around it."""
    tx_bytes: int = 0
    """Of inner packets sent."""
    rx_bytes: int = 0
    tx_messages: int = 0
    rx_messages: int = 0
    acks_merged: int = 0
    """Acknowledgements of TCP that were left out, as a later one says all that they say."""
    ce_marked: int = 0
    """Packets marked by CoDel instead of dropped."""
    reordered: int = 0
    """Packets that waited for others of their flow."""
    gaps_given_up: int = 0
    """Packets, or several in a row, that others of their flow did not wait for any longer."""
    late: int = 0
    """Packets that came after they had been given up."""
    expired: int = 0
    """Messages given up unacknowledged after `TunnelConfig.max_age_s`."""
    refused: int = 0
    """Clients that were not let in."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Packets that were dropped, by reason."""

    def add(self, other: Counters) -> None:
        """Add another's."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.dropped.update(other.dropped)

    def as_json(self) -> dict[str, object]:
        """Return all of them by name."""
        return asdict(self) | {"dropped": dict(sorted(self.dropped.items()))}


_NUMBERS = [name for name in Counters.__slots__ if name != "dropped"]
