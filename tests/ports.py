"""A port of loopback that stays free while nobody has it: for a server that is started later, or again."""

from __future__ import annotations

import os


def own_port() -> int:
    """Return a port of this process, below those that the kernel gives to others."""
    return 10_000 + os.getpid() % 20_000
