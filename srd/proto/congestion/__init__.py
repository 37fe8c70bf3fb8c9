"""How much may be in flight to a peer: congestion controllers, limits."""
