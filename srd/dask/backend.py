"""What distributed asks a protocol for: a connector, a listener, and what addresses mean."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import Comm, CommClosedError, Connector
from distributed.comm.tcp import BaseTCPBackend, BaseTCPListener
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


class SrdListener(BaseTCPListener):  # type: ignore[misc] # distributed has no types here
    """Accepts comms. What addresses mean, and its arguments, are those of distributed's listeners of TCP."""

    prefix = PREFIX

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._shared: SharedEndpoint | None = None
        self._stopped = False

    def _check_encryption(self, _address: str, arguments: dict[str, Any]) -> None:
        check_security(arguments)

    def _get_server_args(self, **_arguments: Any) -> dict[str, Any]:
        return {}

    def _check_started(self) -> None:
        if self.bound_address is None:
            raise ValueError("the listener has not been started")

    async def start(self) -> None:
        """Bind, and accept. Raises OSError."""
        try:
            endpoint = await Endpoint.listen(self.ip or "0.0.0.0", self.port, config=endpoints.config())  # noqa: S104
        except SrdError as error:
            raise OSError(str(error)) from error
        self._shared = SharedEndpoint(endpoint)
        self._shared.take()
        self.bound_address = endpoint.address
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
        comm = SrdComm(peer, shared, local=local, remote=remote, deserialize=self.deserialize)
        comm.allow_offload = self.allow_offload
        try:
            await self.on_connection(comm)
        except CommClosedError:
            return
        await self.comm_handler(comm)

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


class SrdBackend(BaseTCPBackend):  # type: ignore[misc] # distributed has no types here
    """`srd://HOST:PORT`."""

    _connector_class = SrdConnector
    _listener_class = SrdListener

    def get_local_address_for(self, loc: str) -> str:
        """Return this host's address towards another one, which may be IPv6's."""
        host, _ = parse_host_port(loc)
        return str(unparse_host_port(local_host(ensure_ip(host)), None))
