"""To listen at all addresses of this host, by IPv6 and IPv4 if it has both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from srd.endpoint import Endpoint
from srd.errors import SrdError

_ANY: Final = ("::", "0.0.0.0")  # noqa: S104 - as iperf3's server; IPv6 carries both


async def listen_at(host: str | None, listen: Callable[[str], Awaitable[Endpoint]]) -> Endpoint:
    """Listen at a host's address, or at all for None. Raises SrdError."""
    hosts = _ANY if host is None else (host,)
    for each in hosts[:-1]:
        try:
            return await listen(each)
        except SrdError:  # no IPv6 here
            continue
    return await listen(hosts[-1])
