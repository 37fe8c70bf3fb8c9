"""How much may be in flight to a peer, and when it is sent: congestion controllers, the pacer, limits."""
