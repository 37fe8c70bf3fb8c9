"""What a tunnel counts. Those of ENA Express have its names and meanings (AWS, "ENA Express metrics")."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Annotated


@dataclass(slots=True)
class Counters:
    """Totals of a tunnel, or of one of its peers. Packets are those on a wire: a super-packet counts its segments."""

    ena_srd_tx_pkts: Annotated[int, "Packets sent over SRD."] = 0
    ena_srd_eligible_tx_pkts: Annotated[
        int, "Packets sent that could go over SRD, those included that went around it while no peer answered."
    ] = 0
    ena_srd_rx_pkts: Annotated[int, "Packets received over SRD."] = 0
    encapsulated_tx_pkts: Annotated[int, "Packets sent around SRD, in plain UDP."] = 0
    encapsulated_rx_pkts: Annotated[int, "Packets received around SRD."] = 0
    tx_bytes: Annotated[int, "Bytes of inner packets sent over SRD."] = 0
    rx_bytes: Annotated[int, "Bytes of inner packets received over SRD."] = 0
    tx_messages: Annotated[int, "SRD messages sent."] = 0
    rx_messages: Annotated[int, "SRD messages received."] = 0
    acks_merged: Annotated[int, "Acknowledgements of TCP that were left out, as a later one says all they say."] = 0
    ce_marked: Annotated[int, "Packets marked by CoDel instead of dropped."] = 0
    reordered: Annotated[int, "Packets that waited for others of their flow."] = 0
    gaps_given_up: Annotated[
        int, "Packets, or several in a row, that others of their flow did not wait for any longer."
    ] = 0
    late: Annotated[int, "Packets that came after they had been given up."] = 0
    expired: Annotated[int, "Messages given up unacknowledged."] = 0
    refused: Annotated[int, "Clients that were not let in."] = 0
    dropped: Annotated[Counter[str], "Packets dropped, by reason."] = field(default_factory=Counter)

    def add(self, other: Counters) -> None:
        """Add another's."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.dropped.update(other.dropped)

    def as_json(self) -> dict[str, object]:
        """Return all of them by name."""
        return asdict(self) | {"dropped": dict(sorted(self.dropped.items()))}


_NUMBERS = [name for name in Counters.__slots__ if name != "dropped"]
