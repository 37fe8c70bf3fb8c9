"""What distributed asks a protocol for: a connector, a listener, and what addresses mean."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import BaseListener, Comm, CommClosedError, Connector
from distributed.comm.registry import Backend
from distributed.comm.utils import ensure_concrete_host
from distributed.utils import ensure_ip, get_ip, get_ipv6

from srd import Endpoint, Peer, SrdError
from srd.dask import endpoints
from srd.dask.comm import SrdComm
from srd.dask.endpoints import SharedEndpoint

PREFIX: Final = "srd://"


def check_security(arguments: dict[str, Any]) -> None:
    """Raise RuntimeError unless what Dask's Security asks for is what there is."""
    if arguments.get("ssl_context") is not None:
        raise RuntimeError(f"srd has no TLS: leave the certificates out, and name a key in {endpoints.KEY_FILE}")
    if arguments.get("require_encryption") and not endpoints.is_encrypted():
        raise RuntimeError(f"encryption is required, and srd has no key: name a file in {endpoints.KEY_FILE}")


def local_host(remote: str) -> str:
    """Return this host's address towards another one."""
    return str(get_ipv6(remote) if ":" in remote else get_ip(remote))


class SrdConnector(Connector):  # type: ignore[misc] # distributed has no types here
    """Opens comms."""

    async def connect(self, address: str, deserialize: bool = True, **arguments: Any) -> Comm:  # noqa: FBT001, FBT002
        """Open a comm. Raises OSError."""
        check_security(arguments)
        host, port = parse_host_port(address)
        try:
            shared, peer = await endpoints.connect(host, port)
        except SrdError as error:
            raise OSError(str(error)) from error
        local = unparse_host_port(local_host(ensure_ip(host)), shared.endpoint.address[1])
        return SrdComm(peer, shared, local=PREFIX + local, remote=PREFIX + address, deserialize=deserialize)


class SrdListener(BaseListener):  # type: ignore[misc] # distributed has no types here
    """Accepts comms."""

    prefix = PREFIX

    def __init__(
        self,
        address: str,
        handler: Callable[[Comm], Coroutine[Any, Any, None]],
        deserialize: bool = True,  # noqa: FBT001, FBT002 - distributed's signature
        allow_offload: bool = True,  # noqa: FBT001, FBT002
        default_host: str | None = None,
        default_port: int = 0,
        **arguments: Any,
    ) -> None:
        super().__init__()
        check_security(arguments)
        self._host, self._port = parse_host_port(address, default_port)
        self._default_host = default_host
        self._handler, self._deserialize, self._allow_offload = handler, deserialize, allow_offload
        self._shared: SharedEndpoint | None = None
        self._bound: tuple[str, int] | None = None
        self._stopped = False

    async def start(self) -> None:
        """Bind, and accept. Raises OSError."""
        try:
            endpoint = await Endpoint.listen(self._host or "0.0.0.0", self._port, config=endpoints.config())  # noqa: S104
        except SrdError as error:
            raise OSError(str(error)) from error
        self._shared = SharedEndpoint(endpoint)
        self._shared.take()
        self._bound = endpoint.address
        self._shared.tasks.start(self._accept(self._shared))

    async def _accept(self, shared: SharedEndpoint) -> None:
        while True:
            try:
                peer = await shared.endpoint.accept()
            except SrdError:  # stopped
                return
            shared.take()
            shared.tasks.start(self._serve(shared, peer))

    async def _serve(self, shared: SharedEndpoint, peer: Peer) -> None:
        remote = PREFIX + unparse_host_port(*peer.address)
        local = self.contact_address
        comm = SrdComm(peer, shared, local=local, remote=remote, deserialize=self._deserialize)
        comm.allow_offload = self._allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            return
        await self._handler(comm)

    def stop(self) -> None:
        """Accept no more; comms go on."""
        shared = self._shared
        if shared is not None and not self._stopped:
            self._stopped = True
            shared.endpoint.stop_accepting()
            try:
                asyncio.get_running_loop()
            except RuntimeError:  # the loop is gone, and the endpoint with it
                return
            shared.leave()

    @property
    def listen_address(self) -> str:
        """The address that is bound."""
        return f"{PREFIX}{unparse_host_port(*self._address)}"

    @property
    def contact_address(self) -> str:
        """The address for others."""
        host, port = self._address
        host = ensure_concrete_host(host, default_host=self._default_host)
        return f"{PREFIX}{unparse_host_port(host, port)}"

    @property
    def _address(self) -> tuple[str, int]:
        if self._bound is None:
            raise ValueError("the listener has not been started")
        return self._bound

    def get_host_port(self) -> tuple[str, int]:
        """Return the address that is bound."""
        return self._address


class SrdBackend(Backend):  # type: ignore[misc] # distributed has no types here
    """`srd://HOST:PORT`."""

    def get_connector(self) -> SrdConnector:  # noqa: D102
        return SrdConnector()

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **arguments: Any) -> SrdListener:  # noqa: D102, FBT001
        return SrdListener(loc, handle_comm, deserialize, **arguments)

    def get_address_host(self, loc: str) -> str:  # noqa: D102
        return str(parse_host_port(loc)[0])

    def get_address_host_port(self, loc: str) -> tuple[str, int]:  # noqa: D102
        host, port = parse_host_port(loc)
        return host, port

    def resolve_address(self, loc: str) -> str:  # noqa: D102
        host, port = parse_host_port(loc)
        return str(unparse_host_port(ensure_ip(host), port))

    def get_local_address_for(self, loc: str) -> str:  # noqa: D102
        host, _ = parse_host_port(loc)
        return str(unparse_host_port(local_host(ensure_ip(host)), None))
