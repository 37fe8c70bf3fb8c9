"""Packet layouts: data headers, control packets, statuses, and the table of all fields."""
