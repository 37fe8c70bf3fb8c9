"""`srd tunnel`: unmodified programs over SRD, through a TUN interface at each end."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from netns.base.addresses import host_port_text, reached_at
from netns.base.metrics import check_forms, metrics_options
from netns.base.options import json_lines_option, with_options
from netns.base.output import emit, print_json
from netns.base.program import CommandGroup
from srd.cli.log import log_level, log_options, logging_to_stderr
from srd.cli.metrics import metrics_option
from srd.cli.options import bind_option, port_option, run
from srd.cli.peer_options import PeerOptions, peer_options
from srd.cli.security import TargetAddress, check_fingerprint, known_hosts_option
from srd.config import EndpointConfig
from srd.errors import UsageError
from srd.metrics.exposition import families_text
from srd.metrics.serving import serving
from srd.proto.config import ProtocolConfig
from srd.sd_notify import notifying_systemd
from srd.secure.config import Keys
from srd.tunnel.allowed import is_within, read_peers
from srd.tunnel.config import MAX_MTU, MIN_MTU, TunnelConfig
from srd.tunnel.connector import Connector
from srd.tunnel.greeting import Network, OwnAddress
from srd.tunnel.listener import Listener
from srd.tunnel.member import MERGED_BYTES
from srd.tunnel.running import PORT, RunningTunnel, TunnelSettings, connecting, listening
from srd.tunnel.stats import ask, describe, families, names, report, serving_stats

_FILE = click.Path(path_type=Path, dir_okay=False)
MAX_PORT: Final = 65_535
_log: Final = logging.getLogger(__name__)


class AddressType(click.ParamType[OwnAddress]):
    """ADDRESS/PREFIX of an interface."""

    name = "ADDRESS/PREFIX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> OwnAddress:
        """Return address and network; fail with one line that describes the error."""
        if "/" not in str(value):
            self.fail(
                f"{value!r}: has no prefix length, which says what is behind the tunnel, as in 10.88.0.1/24", param, ctx
            )
        try:
            return ipaddress.ip_interface(value)
        except ValueError as error:
            self.fail(f"{error}; give an address such as 10.88.0.1/24 or fd88::1/64", param, ctx)


class NetworkType(click.ParamType[Network]):
    """NETWORK/PREFIX."""

    name = "NETWORK"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Network:
        """Return the network; fail with one line that describes the error."""
        try:
            return ipaddress.ip_network(value)
        except ValueError as error:
            self.fail(f"{error}; give a network such as 10.1.0.0/16", param, ctx)


@click.group(cls=CommandGroup)
def tunnel() -> None:
    """Carry the packets of unmodified programs over SRD, as ENA Express does: TCP, UDP, all of IP.

    Each end has a TUN interface, which exists as long as the command runs. It needs root, or CAP_NET_ADMIN.
    """


common_options: Final = with_options(
    click.option(
        "--address",
        "addresses",
        type=AddressType(),
        multiple=True,
        required=True,
        help="Of the interface, IPv4 or IPv6; may be repeated.",
    ),
    click.option("--interface", "name", metavar="NAME", help="Name of the interface.  [default: srd0, srd1 ...]"),
    click.option(
        "--route",
        "routes",
        type=NetworkType(),
        multiple=True,
        help="Route this network to the interface, too; may be repeated.",
    ),
    click.option("--mtu", type=click.IntRange(MIN_MTU, MAX_MTU), help="Of the interface.  [default: of an SRD packet]"),
    click.option("--queues", type=click.IntRange(1, 256), default=1, show_default=True, help="Of the interface."),
    click.option(
        "--fallback",
        is_flag=True,
        help="Carry packets in plain UDP, unencrypted, where SRD does not answer, at the port behind SRD's. "
        "Both ends need it.",
    ),
    click.option(
        "--express-for",
        type=NetworkType(),
        multiple=True,
        help="Send packets to this network over SRD, and others as --fallback does; may be repeated.  "
        "[default: all over SRD]",
    ),
    peer_options,
    metrics_option,
    log_options,
    json_lines_option,
)
"""What both ends have."""


@dataclass(frozen=True, slots=True)
class TunnelOptions(PeerOptions):
    """Options of both ends."""

    addresses: tuple[OwnAddress, ...]
    name: str | None
    routes: tuple[Network, ...]
    mtu: int | None
    queues: int
    fallback: bool
    express_for: tuple[Network, ...]
    metrics: tuple[str, int] | None
    verbose: bool
    quiet: bool
    as_json: bool

    def settings(self, *, port: int, **more: Any) -> TunnelSettings:
        """Return the settings; `port`: of the listener; `more`: of `security`. Raises click.UsageError."""
        if self.fallback and port == MAX_PORT:
            raise click.UsageError(f"--fallback: there is no port behind {port}; choose another")
        if self.express_for and not self.fallback:
            raise click.UsageError(
                "--express-for says what does not go over SRD; add --fallback, by which it goes then"
            )
        self.check_trace()
        protocol = ProtocolConfig(paths=self.paths, max_message_bytes=MERGED_BYTES)
        return TunnelSettings(
            addresses=self.addresses,
            name=self.name,
            routes=self.routes,
            tunnel=TunnelConfig(mtu=self.mtu, queues=self.queues),
            endpoint=EndpointConfig(protocol=protocol, busy_poll=self.busy_poll, security=self.security(**more)),
            express_for=self.express_for,
        )

    def check_admission(self, peers: Path | None, *, allow_anyone: bool) -> None:
        """Raise click.UsageError unless the options say which clients a listener accepts."""
        given = {"--peers": peers, "--psk-file": self.psk_file, "--cert": self.cert}
        names = [name for name, value in given.items() if value is not None]
        if allow_anyone and names:
            raise click.UsageError(f"--allow-anyone and {names[0]} exclude each other; give one of them")
        if not allow_anyone and not names:
            raise click.UsageError(
                "nothing says who may connect: give --peers FILE (a line for each client: its key, as srd keygen "
                "prints it there, and its ADDRESS), --psk-file, or --cert; to accept any client, --allow-anyone"
            )

    def logging(self, command: str) -> AbstractContextManager[None]:
        """Log to stderr. Raises click.UsageError."""
        return logging_to_stderr(command, level=log_level(verbose=self.verbose, quiet=self.quiet))

    @asynccontextmanager
    async def serving(self, tunnel: RunningTunnel, *, title: str) -> AsyncIterator[None]:
        """Answer those who ask for statistics, and tell systemd that it runs."""
        async with (
            serving(
                self.metrics, tunnel.endpoint, title=title, say=_log.info, families=lambda: families(report(tunnel))
            ),
            serving_stats(tunnel),
            notifying_systemd(title),
        ):
            yield


@tunnel.command()
@port_option(PORT, help_text="UDP port; 0: any that is free.")
@bind_option
@click.option("--peers", type=_FILE, help="Accept only the clients in this file, a line each: KEY ADDRESS,NETWORK...")
@click.option("--allow-anyone", is_flag=True, help="Accept any client, whatever its key, and with --plain without one.")
@common_options
def listen(*, port: int, bind: str | None, peers: Path | None, allow_anyone: bool, **common: Any) -> int:
    """Be the end that others connect to.

    Each client has addresses of the interface's networks, or those that --peers gives to its key, and sends with no
    other source. Clients reach each other, and networks beyond, if this host forwards (sysctl net.ipv4.ip_forward=1).

    Say who may connect: --peers, --psk-file, --cert, or --allow-anyone. Without --peers the first to come has an
    address as long as it answers.

    \b
      srd keygen                                  at the client: prints its key
      echo "KEY 10.88.0.2" >>peers                at the listener
      srd tunnel listen --address 10.88.0.1/24 --peers peers
    """  # noqa: D301 - \b is click's mark for "do not rewrap"
    options = TunnelOptions(**common)
    options.check_admission(peers, allow_anyone=allow_anyone)
    try:
        allowed = None if peers is None else read_peers(peers)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    settings = options.settings(port=port)
    if allowed is not None:
        own = [each.network for each in options.addresses]
        behind = {
            each for networks in allowed.values() for each in networks if not any(is_within(each, net) for net in own)
        }
        settings = replace(settings, routes=[*options.routes, *sorted(behind, key=str)])
        security = settings.endpoint.security
        if not isinstance(security, Keys):
            raise click.UsageError("--peers names public keys; leave --plain, --psk-file and --cert out")
        authorized = replace(security, authorized=frozenset(allowed))
        settings = replace(settings, endpoint=replace(settings.endpoint, security=authorized))
    with options.logging("srd tunnel listen"):
        if allow_anyone:
            networks = ", ".join(str(each.network) for each in options.addresses)
            _log.warning("any client may connect, whatever its key, and reach %s (--allow-anyone)", networks)
        return run(_listen(options, settings, (bind, port), allowed), as_json=options.as_json, is_daemon=True)


async def _listen(
    options: TunnelOptions,
    settings: TunnelSettings,
    where: tuple[str | None, int],
    peers: dict[bytes, tuple[Network, ...]] | None,
) -> int:
    host, port = where
    with options.tracing(title="srd tunnel listen", vantage_point="server") as trace:
        async with listening(host, port, settings=settings, trace=trace) as tunnel:
            listener = Listener(
                tunnel.endpoint,
                device=tunnel.device,
                gateway=tunnel.gateway,
                routing=tunnel.routing,
                peers=peers,
                falls_back=options.fallback,
            )
            title = _say_listening(options, tunnel)
            async with options.serving(tunnel, title=title):
                await tunnel.run(listener)
    return 0


def _say_listening(options: TunnelOptions, tunnel: RunningTunnel) -> str:
    """Say where the tunnel listens, and how to connect; return where."""
    host, port = tunnel.endpoint.address
    code = tunnel.endpoint.identity.fingerprint
    target = f"{host_port_text(reached_at(host), port)}{'#' * bool(code)}{code}"
    title = f"listening on {host_port_text(host, port)}, interface {tunnel.device.name}"
    _log.info("%s", title)
    if tunnel.routing.encapsulation is not None:
        _log.warning(
            "packets in plain UDP are taken at %s: unencrypted, from whoever names a client's address as source",
            tunnel.routing.encapsulation.name,
        )
    _log.info("connect with: srd tunnel connect %s --address %s", target, _example(options.addresses[0]))
    if options.as_json:
        emit("listening", address=host, port=port, fingerprint=code, interface=tunnel.device.name)
    return title


def _example(own: OwnAddress) -> str:
    """Return another address of the same network."""
    another = own.ip + (1 if own.ip + 1 in own.network and own.ip + 1 != own.network.broadcast_address else -1)
    return f"{another}/{own.network.prefixlen}"


@tunnel.command()
@click.argument("target", type=TargetAddress(default_port=PORT))
@common_options
@known_hosts_option
def connect(*, target: tuple[str, int, str | None], known_hosts: Path | None, **common: Any) -> int:
    """Connect to an `srd tunnel listen` at HOST, as that prints it.

    The interface stays when the other end is lost, until it answers again: what is connected inside goes on.
    """
    options = TunnelOptions(**common)
    settings = options.settings(port=target[1], known_hosts=known_hosts)
    check_fingerprint(target, settings.endpoint.security)
    with options.logging("srd tunnel connect"):
        return run(_connect(options, settings, target), as_json=options.as_json, is_daemon=True)


async def _connect(options: TunnelOptions, settings: TunnelSettings, target: tuple[str, int, str | None]) -> int:
    host, port, _ = target
    with options.tracing(title=f"srd tunnel connect to {host_port_text(host, port)}", vantage_point="client") as trace:
        async with connecting(host, settings=settings, trace=trace) as tunnel:
            title = f"{host_port_text(host, port)}, interface {tunnel.device.name}"

            def say_connected(_: object) -> None:
                _log.info("connected to %s", title)
                if options.as_json:
                    emit("connected", address=host, port=port, interface=tunnel.device.name)

            connector = Connector(
                tunnel.endpoint,
                target=target,
                device=tunnel.device,
                gateway=tunnel.gateway,
                routing=tunnel.routing,
                routes=options.routes,
                falls_back=options.fallback,
                on_connected=say_connected,
            )
            async with options.serving(tunnel, title=f"connected to {title}"):
                await tunnel.run(connector)
    return 0


@tunnel.command()
@click.argument("interface", required=False)
@metrics_options
def metrics(*, interface: str | None, as_json: bool, prometheus: bool) -> int:
    """Show what the tunnels of this network namespace have counted, or the one with INTERFACE.

    Counters whose names begin with ena_srd_ are those of ENA Express (ethtool -S).
    """
    check_forms(as_json=as_json, prometheus=prometheus)
    found = [ask(name) for name in ([interface] if interface else names())]
    if as_json:
        print_json(found)
        return 0
    if not found:
        raise click.ClickException("no tunnel runs in this network namespace; start one with srd tunnel listen")
    if prometheus:
        click.echo(families_text({each["interface"]: families(each) for each in found}, label="interface"), nl=False)
        return 0
    for each in found:
        click.echo(describe(each), nl=False)
    return 0
