"""A client's one-liner: a peer with an endpoint of its own."""

from __future__ import annotations

from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.opening import Opening
from srd.peer import Peer
from srd.proto.trace import Trace


def connect(
    host: str,
    port: int,
    *,
    fingerprint: str | None = None,
    config: EndpointConfig | None = None,
    trace: Trace | None = None,
) -> Opening[Peer]:
    """Open an endpoint and connect it: `async with srd.connect(host, port) as peer`, or `await srd.connect(...)`.

    Closing the peer closes the endpoint, too. To connect to several peers, share one endpoint (`Endpoint.open`): each
    has its own sockets and receive memory. Arguments and errors are those of `Endpoint.open` and `Endpoint.connect`.
    """
    return Opening(_connect(host, port, fingerprint=fingerprint, config=config, trace=trace))


async def _connect(
    host: str, port: int, *, fingerprint: str | None, config: EndpointConfig | None, trace: Trace | None
) -> Peer:
    endpoint = await Endpoint.open(towards=host, config=config, trace=trace)
    try:
        peer = await endpoint.connect(host, port, fingerprint=fingerprint)
    except BaseException:
        await endpoint.close()
        raise
    peer.close_with(endpoint.close)
    return peer
