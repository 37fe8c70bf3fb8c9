"""Packet layouts: data headers, control packets, statuses."""
