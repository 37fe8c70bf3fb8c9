"""The sending half of a peer: work requests, their order, credit, packets in flight."""
