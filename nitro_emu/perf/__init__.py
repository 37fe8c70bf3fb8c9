"""Measurements between two devices: what `efa-pingpong` and `efa-bw` do.

The two ends meet over TCP (`exchange`), agree on a plan, and tell each other how their queue pairs are addressed. What
is measured goes from card to card. The client decides and measures; the server does its part, size by size.
"""
