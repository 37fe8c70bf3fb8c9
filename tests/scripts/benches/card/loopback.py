"""A pair of ends without namespaces: two addresses of 127.0.0.0/8, for what needs no link of its own."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import cast

from netns.lab.lab import Lab
from scripts.harness.two_hosts import RECEIVER, SENDER, TwoHosts

_addresses = itertools.count()


class _NoLab:
    """Runs commands where the tests run."""

    def command(self, _node: str, argv: Sequence[str]) -> list[str]:
        return [*argv]


def loopback_address() -> str:
    """Return an address that no other test uses at the same time."""
    pid = os.getpid()
    return f"127.{101 + (pid >> 8) % 100}.{pid % 256}.{next(_addresses) % 254 + 1}"


def loopback_pair(*, sender: str | None = None) -> TwoHosts:
    """Return two ends; `sender`: the first one's address."""
    return TwoHosts(cast(Lab, _NoLab()), (SENDER, RECEIVER), sender or loopback_address(), loopback_address())
