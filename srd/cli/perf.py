"""`srd perf server` and `srd perf client`: iperf3's flags and output, for SRD, TCP and MPTCP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from netns.units import UnitError, parse_rate_bps
from srd.cli.options import Duration, Size, busy_poll_option, run
from srd.cli.security import (
    authorized_keys_option,
    known_hosts_option,
    security_config,
    security_options,
    split_fingerprint,
)
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.io.addresses import host_port_text
from srd.peer import Peer
from srd.perf.client import Client, Target
from srd.perf.errors import PerfError
from srd.perf.iperf_json import document, error_document
from srd.perf.meter import Interval
from srd.perf.opening import listen
from srd.perf.parameters import (
    MAX_OMIT_S,
    MAX_RATE_BPS,
    MAX_SECONDS,
    MAX_SRD_BLOCK_BYTES,
    MAX_STREAMS,
    MAX_TOTAL_BYTES,
    SRD_BLOCK_BYTES,
    TCP_BLOCK_BYTES,
    Direction,
    Parameters,
    Protocol,
)
from srd.perf.results import Report, Start, describe
from srd.perf.server import INTERVAL_S, Server
from srd.perf.tcp_socket import BBR, CUBIC
from srd.perf.text import RULE, TextReport
from srd.printable import printable
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.secure.config import Keys, SecurityConfig

PORT: Final = 5201
"""iperf3's, so that what a firewall allows for it is allowed for this."""
SECONDS: Final = 10.0
"""iperf3's."""
MAX_CONNECT_S: Final = 600.0
_ANY: Final = ("::", "0.0.0.0")  # noqa: S104 - a server listens everywhere by default, as iperf3's; IPv6 carries both


class Seconds(Duration):
    """A duration such as 500ms; as with iperf3 a bare number is seconds, or what `bare_s` says."""

    name = "TIME"

    def __init__(self, *, most_s: float, bare_s: float = 1.0) -> None:
        super().__init__(most_s=most_s)
        self._bare_s = bare_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; fail with one line that describes the error."""
        try:
            seconds = float(value) * self._bare_s
        except ValueError:
            return super().convert(value, param, ctx)
        return super().convert(f"{seconds:.9f}s", param, ctx)


class Rate(click.ParamType[int]):
    """A rate in bit/s such as 250mbit (netns.units), or 250M as with iperf3."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bits per second; fail with one line that describes the error."""
        text = str(value)
        try:
            rate_bps = parse_rate_bps(f"{text}bit" if text[-1:].lower() in tuple("kmgt") else text)
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if not 0 <= rate_bps <= MAX_RATE_BPS:
            self.fail(f"{value} is out of range; give 0 (no limit) to 10tbit", param, ctx)
        return rate_bps


@click.group()
def perf() -> None:
    """Measure between two machines, as iperf3 does: SRD, TCP and MPTCP over the same addresses."""


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that both ends have."""
    for option in (
        busy_poll_option,
        click.option(
            "--paths",
            type=click.IntRange(1, MAX_PATHS),
            help=f"Number of source ports to spray packets over.  [default: {ProtocolConfig().paths}]",
        ),
        click.option("--logfile", type=click.Path(path_type=Path, dir_okay=False), help="Write the output to FILE."),
        click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON document, in iperf3's schema."),
        click.option("-B", "--bind", metavar="ADDRESS", help="Use this local address."),
        click.option(
            "-i",
            "--interval",
            "interval_s",
            type=Seconds(most_s=3600.0),
            default=f"{INTERVAL_S:g}",
            show_default=True,
            help="Time between two reports; 0: only one, at the end.",
        ),
        click.option("-p", "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Common:
    """Options that both ends have."""

    port: int
    interval_s: float
    bind: str | None
    as_json: bool
    logfile: Path | None
    paths: int | None
    busy_poll: bool
    plain: bool
    psk_file: Path | None
    cert: Path | None
    ca: Path | None

    def __post_init__(self) -> None:
        """Raise click.UsageError for an interval that would only cost time."""
        if 0 < self.interval_s < 0.1:
            raise click.UsageError(f"--interval {self.interval_s:g}s: is too short; give 0, or at least 100ms")

    def security(self, **keys: Path | None) -> SecurityConfig:
        """Return what the options say. Raises click.UsageError."""
        return security_config(plain=self.plain, psk_file=self.psk_file, cert=self.cert, ca=self.ca, **keys)

    def config(self, security: SecurityConfig) -> EndpointConfig:
        """Return the endpoint's settings."""
        protocol = ProtocolConfig(paths=self.paths or ProtocolConfig().paths)
        return EndpointConfig(protocol=protocol, busy_poll=self.busy_poll, security=security)

    @contextmanager
    def output(self) -> Iterator[Callable[[str], None]]:
        """Yield what prints text. Raises click.ClickException for a file that cannot be written."""
        if self.logfile is None:
            yield lambda text: click.echo(text, nl=False)
            return
        try:
            file = self.logfile.open("a", buffering=1, encoding="utf-8")
        except OSError as error:
            raise click.ClickException(f"--logfile {self.logfile}: cannot be written ({error.strerror})") from error
        with file:

            def write(text: str) -> None:
                file.write(text)

            yield write


_tcp_option = click.option("--tcp", is_flag=True, help="Measure kernel TCP.")
_congestion_option = click.option(
    "-C",
    "--congestion",
    metavar="ALGO",
    help=f"Congestion control of TCP and MPTCP, such as {BBR}.  [default: {CUBIC}]",
)


def _note(text: str) -> None:
    """Print one line to stderr."""
    click.echo(f"srd perf: {printable(text)}", err=True)


# -- the server ---------------------------------------------------------------------------------------------------


@perf.command()
@_common
@click.option("-1", "--one-off", is_flag=True, help="Serve one test, and exit.")
@security_options
@authorized_keys_option
def server(*, one_off: bool, authorized_keys: Path | None, **common: Any) -> int:
    """Serve tests, one at a time, until stopped.

    Prints what to test with: the fingerprint of its key follows # in the host. UDP must reach the port, and TCP for
    tests of TCP. Everything but the data of TCP is encrypted.
    """
    options = Common(**common)
    config = options.config(options.security(authorized_keys=authorized_keys))
    return run(_serve(options, config, one_off=one_off))


async def _serve(options: Common, config: EndpointConfig, *, one_off: bool) -> int:
    with options.output() as write:
        async with await _listen(options, config) as endpoint:
            host, port = endpoint.address
            code = endpoint.identity.fingerprint
            target = f"HOST{'#' * bool(code)}{code}" + (f" -p {port}" if port != PORT else "")
            listening = f"Server listening on {host_port_text(host, port)}"
            if options.as_json:
                _note(listening)
            else:
                write(f"{RULE}\n{listening}\n{RULE}\n")
            _note(f"test with: srd perf client {target}")
            tests = Server(endpoint, write=write, note=_note, as_json=options.as_json, interval_s=options.interval_s)
            return await tests.serve(one_off=one_off)


async def _listen(options: Common, config: EndpointConfig) -> Endpoint:
    hosts = _ANY if options.bind is None else (options.bind,)
    for host in hosts[:-1]:
        try:
            return await listen(host, port=options.port, config=config)
        except SrdError:  # no IPv6 here
            continue
    return await listen(hosts[-1], port=options.port, config=config)


# -- the client ---------------------------------------------------------------------------------------------------


@perf.command()
@click.argument("host", metavar="HOST[#FINGERPRINT]")
@_common
@click.option("-t", "--time", "seconds", type=Seconds(most_s=MAX_SECONDS), help="How long.  [default: 10]")
@click.option("-n", "--bytes", "size_bytes", type=Size(least=1, most=MAX_TOTAL_BYTES), help="How much, instead.")
@click.option("-O", "--omit", "omit_s", type=Seconds(most_s=MAX_OMIT_S), default="0", help="Time before -t to ignore.")
@click.option("-b", "--bitrate", "rate_bps", type=Rate(), default="0", help="Limit of each stream, such as 250M.")
@click.option(
    "-l",
    "--length",
    "block_bytes",
    type=Size(least=1, most=MAX_SRD_BLOCK_BYTES),
    help="Length of a message (SRD), or of a write (TCP).  [default: 1M; TCP: 128K]",
)
@click.option(
    "-P",
    "--parallel",
    "streams",
    type=click.IntRange(1, MAX_STREAMS),
    default=1,
    help="Number of streams: of SRD a peer each, all of one endpoint; of TCP a connection each.",
)
@click.option("-R", "--reverse", is_flag=True, help="The server sends.")
@click.option("--bidir", is_flag=True, help="Both send, over streams of their own.")
@_tcp_option
@click.option("-m", "--mptcp", is_flag=True, help="Measure MPTCP.")
@_congestion_option
@click.option("--verify", is_flag=True, help="Compare every byte that arrives with what was sent.")
@click.option("--get-server-output", "server_output", is_flag=True, help="Show what the server printed, too.")
@click.option(
    "--connect-timeout",
    "connect_timeout_s",
    type=Seconds(most_s=MAX_CONNECT_S, bare_s=0.001),
    default="10s",
    show_default=True,
    help="How long to try to connect; a bare number is milliseconds.",
)
@security_options
@known_hosts_option
def client(*, host: str, known_hosts: Path | None, **given: Any) -> int:
    """Measure to an `srd perf server` at HOST, as iperf3 -c does.

    The lines are iperf3's, with the smoothed round trip and the number of paths used. Sizes have binary prefixes
    (1M is 1048576 bytes), rates decimal ones (1M is 1000000 bit/s).
    """
    names = Common.__dataclass_fields__
    options = Common(**{name: given.pop(name) for name in names})
    test = ClientOptions(**given)
    address, fingerprint = split_fingerprint(host)
    security = options.security(known_hosts=known_hosts)
    if fingerprint and not isinstance(security, Keys):
        raise click.UsageError(
            f"{host}: a fingerprint is of a public key; leave out --plain, --psk-file, --cert, or it"
        )
    target = Target(address.removeprefix("[").removesuffix("]"), options.port, fingerprint)
    return run(_measure(target, test, options=options, config=options.config(security)))


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Options of a client only."""

    seconds: float | None
    size_bytes: int | None
    omit_s: float
    rate_bps: int
    block_bytes: int | None
    streams: int
    reverse: bool
    bidir: bool
    tcp: bool
    mptcp: bool
    congestion: str | None
    verify: bool
    server_output: bool
    connect_timeout_s: float

    def __post_init__(self) -> None:
        """Raise click.UsageError for options that exclude each other."""
        self.parameters()

    def parameters(self) -> Parameters:
        """Return the test. Raises click.UsageError."""
        for one, other, both in (
            ("--time", "--bytes", self.seconds is not None and self.size_bytes is not None),
            ("--reverse", "--bidir", self.reverse and self.bidir),
            ("--tcp", "--mptcp", self.tcp and self.mptcp),
        ):
            if both:
                raise click.UsageError(f"{one} and {other} exclude each other; give one of them")
        is_tcp = self.tcp or self.mptcp
        if self.congestion is not None and not is_tcp:
            raise click.UsageError("--congestion is of TCP; give --tcp or --mptcp, too")
        if self.seconds == 0:
            raise click.UsageError("--time 0: a test ends; give --bytes for one without a time")
        protocol = Protocol.MPTCP if self.mptcp else Protocol.TCP if self.tcp else Protocol.SRD
        parameters = Parameters(
            protocol,
            congestion=(self.congestion or CUBIC) if is_tcp else "",
            seconds=0.0 if self.size_bytes else SECONDS if self.seconds is None else self.seconds,
            size_bytes=self.size_bytes or 0,
            omit_s=self.omit_s,
            streams=self.streams,
            block_bytes=self.block_bytes or (TCP_BLOCK_BYTES if is_tcp else SRD_BLOCK_BYTES),
            rate_bps=self.rate_bps,
            direction=Direction.REVERSE if self.reverse else Direction.BOTH if self.bidir else Direction.FORWARD,
            verify=self.verify,
            server_output=self.server_output,
        )
        try:
            parameters.check()
        except PerfError as error:
            raise click.UsageError(str(error)) from error
        return parameters


class Quiet:
    """A watch for JSON, which is printed at the end."""

    def started(self, start: Start) -> None:
        """Print nothing."""

    def interval(self, interval: Interval) -> None:
        """Print nothing."""


async def _measure(target: Target, test: ClientOptions, *, options: Common, config: EndpointConfig) -> int:
    name = host_port_text(target.host, target.port)

    def greet(peer: Peer) -> None:
        code = peer.identity.fingerprint
        _note(f"{name} is new: its key has the fingerprint {code}, and is trusted from now on")

    with options.output() as write:
        text = TextReport(lambda line: write(line + "\n"))
        try:
            async with await _open(target, options, config) as endpoint:
                tests = Client(
                    endpoint,
                    target,
                    connect_timeout_s=test.connect_timeout_s,
                    bind=options.bind,
                    on_first_contact=greet,
                )
                watch = Quiet() if options.as_json else text
                report = await tests.run(test.parameters(), interval_s=options.interval_s, watch=watch)
        except SrdError as error:
            if options.as_json:
                write(describe(error_document(str(error))) + "\n")
            raise
        if options.as_json:
            write(describe(document(report)) + "\n")
        else:
            text.ended(report)
            _write_server_output(report, write)
    return 0


async def _open(target: Target, options: Common, config: EndpointConfig) -> Endpoint:
    if options.bind is None:
        return await Endpoint.open(towards=target.host, config=config)
    return await Endpoint.listen(options.bind, 0, config=config)  # at an address; nobody accepts what it is sent


def _write_server_output(report: Report, write: Callable[[str], None]) -> None:
    output = report.other.output if report.other else None
    if output is not None:
        write("\nServer output:\n" + (output if isinstance(output, str) else describe(output)) + "\n")
    write("srd perf done.\n")
