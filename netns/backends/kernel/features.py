"""Kernel features that a lab needs besides netem, tried in a nameless namespace; None means: available."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netns.backends.kernel.netlink import run_tool
from netns.backends.relay.tap import in_nameless_namespace
from netns.errors import BackendError

IPV6_INTERFACES: Final = Path("/proc/net/if_inet6")


def missing_link(kind: str) -> str | None:
    """Return why the kernel cannot create interfaces of a kind, such as veth."""

    def attempt() -> str | None:
        with IPRoute() as netlink:
            try:
                netlink.link("add", kind=kind, ifname="tried")
            except NetlinkError as error:
                return os.strerror(error.code)
        return None

    return in_nameless_namespace(attempt)


def missing_resilient() -> str | None:
    """Return why there are no resilient nexthop groups: Linux has them since 5.13, iproute2 since 5.12."""

    def attempt() -> str | None:
        try:
            run_tool("ip", "link", "set", "dev", "lo", "up")
            run_tool("ip", "nexthop", "add", "id", "1", "dev", "lo")
            run_tool("ip", "nexthop", "add", "id", "2", "group", "1", "type", "resilient", "buckets", "8")
        except BackendError as error:
            return str(error)
        return None

    return in_nameless_namespace(attempt)


def missing_ipv6() -> str | None:
    """Return why there is no IPv6."""
    return None if IPV6_INTERFACES.exists() else f"there is no {IPV6_INTERFACES}"
