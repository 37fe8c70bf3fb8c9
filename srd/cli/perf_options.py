"""What the commands of `srd perf` have in common: options, where output goes, and how a client begins."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from netns.base.addresses import host_port_text
from netns.base.options import Duration, json_option
from netns.base.printable import printable
from srd.cli.metrics import metrics_option
from srd.cli.options import bind_option, port_option
from srd.cli.peer_options import PeerOptions, peer_options
from srd.cli.security import TargetAddress as TargetType
from srd.cli.security import check_fingerprint
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.metrics.serving import serving
from srd.peer import Peer
from srd.perf.client import PerfClient, ServerTarget
from srd.perf.iperf_json import error_document
from srd.perf.results import describe
from srd.perf.server import INTERVAL_S
from srd.perf.tcp_socket import BBR, CUBIC
from srd.proto.config import ProtocolConfig
from srd.proto.trace import Trace
from srd.secure.config import SecurityConfig

PORT: Final = 5201
"""iperf3's, so that what a firewall allows for it is allowed for this."""
MAX_CONNECT_S: Final = 600.0
LEAST_INTERVAL_S: Final = 0.1


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both ends have."""
    for option in (
        peer_options,
        metrics_option,
        click.option("--logfile", type=click.Path(path_type=Path, dir_okay=False), help="Write the output to FILE."),
        json_option,
        bind_option,
        port_option(PORT, help_text="The server's port, of UDP and TCP."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class PerfOptions(PeerOptions):
    """Options that both ends have."""

    port: int
    bind: str | None
    as_json: bool
    logfile: Path | None
    metrics: tuple[str, int] | None

    def config(self, security: SecurityConfig) -> EndpointConfig:
        """Return the endpoint's settings."""
        return EndpointConfig(protocol=ProtocolConfig(paths=self.paths), busy_poll=self.busy_poll, security=security)

    def serving(self, endpoint: Endpoint, *, title: str) -> AbstractAsyncContextManager[object]:
        """Serve the endpoint's metrics in a block, if they are asked for."""
        return serving(self.metrics, endpoint, title=title, say=note)

    @contextmanager
    def output(self) -> Iterator[Callable[[str], None]]:
        """Yield what prints text. Raises click.ClickException for a file that cannot be written."""
        if self.logfile is None:
            yield lambda text: click.echo(text, nl=False)
            return
        try:
            file = self.logfile.open("a", encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"--logfile {self.logfile}: cannot be written ({error.strerror})") from error

        def write(text: str) -> None:
            try:
                file.write(text)
                file.flush()
            except OSError as error:
                raise click.ClickException(f"--logfile {self.logfile}: cannot be written ({error.strerror})") from error

        try:
            yield write
        finally:
            with suppress(OSError):  # what could not be written
                file.close()


def _interval(_context: click.Context, _option: click.Parameter, interval_s: float) -> float:
    """Fail for an interval that would only cost time."""
    if 0 < interval_s < LEAST_INTERVAL_S:
        raise click.UsageError(f"--interval {interval_s:g}s: is too short; give 0, or at least 100ms")
    return interval_s


interval_option = click.option(
    "-i",
    "--interval",
    "interval_s",
    type=Duration(most_s=3600.0),
    default=f"{INTERVAL_S:g}",
    show_default=True,
    callback=_interval,
    help="Time between two reports; 0: only one, at the end.",
)
host_argument = click.argument("target", type=TargetType(default_port=0, example_port=PORT))
"""Without a port, which is 0 then, it has that of --port."""
connect_timeout_option = click.option(
    "--connect-timeout",
    "connect_timeout_s",
    type=Duration(most_s=MAX_CONNECT_S),
    default="10s",
    show_default=True,
    help="How long to try to connect.",
)
verify_option = click.option("--verify", is_flag=True, help="Compare every byte that arrives with what was sent.")
tcp_option = click.option("--tcp", is_flag=True, help="Measure kernel TCP.")
congestion_option = click.option(
    "-C",
    "--congestion",
    metavar="ALGO",
    help=f"Congestion control of TCP and MPTCP, such as {BBR}.  [default: {CUBIC}]",
)


def note(text: str) -> None:
    """Print one line to stderr."""
    click.echo(f"srd perf: {printable(text)}", err=True)


@dataclass(frozen=True, slots=True)
class ClientSide:
    """A client's options beside what it measures."""

    common: PerfOptions
    target: ServerTarget
    config: EndpointConfig
    connect_timeout_s: float

    @classmethod
    def of(cls, given: dict[str, Any]) -> ClientSide:
        """Take what belongs to it from the options. Raises click.UsageError."""
        common = PerfOptions(**{name: given.pop(name) for name in PerfOptions.__dataclass_fields__})
        target: tuple[str, int, str | None] = given.pop("target")
        host, port, fingerprint = target
        if port and common.port not in {port, PORT}:
            raise click.UsageError(
                f"{host_port_text(host, port)} and --port {common.port} exclude each other; give one"
            )
        security = common.security(known_hosts=given.pop("known_hosts"))
        check_fingerprint(target, security)
        common.check_trace()
        reached = ServerTarget(host, port or common.port, fingerprint)
        return cls(common, reached, common.config(security), given.pop("connect_timeout_s"))

    @asynccontextmanager
    async def client(self, write: Callable[[str], None]) -> AsyncIterator[PerfClient]:
        """Give the client; an error is printed by `write`, too, if it prints JSON."""
        name = host_port_text(self.target.host, self.target.port)

        def greet(peer: Peer) -> None:
            code = peer.identity.fingerprint
            note(f"{name} is new: its key has the fingerprint {code}, and is trusted from now on")

        try:
            with self.common.tracing(title=f"srd perf client to {name}", vantage_point="client") as trace:
                async with (
                    await self._endpoint(trace) as endpoint,
                    self.common.serving(endpoint, title="srd perf client"),
                ):
                    yield PerfClient(
                        endpoint,
                        self.target,
                        connect_timeout_s=self.connect_timeout_s,
                        bind=self.common.bind,
                        on_first_contact=greet,
                    )
        except SrdError as error:
            if self.common.as_json:
                write(describe(error_document(str(error))) + "\n")
            raise

    async def _endpoint(self, trace: Trace | None) -> Endpoint:
        if self.common.bind is None:
            return await Endpoint.open(towards=self.target.host, config=self.config, trace=trace)
        # Nobody accepts what it is sent.
        return await Endpoint.listen(self.common.bind, 0, config=self.config, trace=trace)
