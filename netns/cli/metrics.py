"""`srd-lab metrics`: a lab's counters for Prometheus, printed once or served.

They are served by this process and not by the relay, whose turns must not wait for a scraper. It answers one request at
a time, each within `TIMEOUT_S`: whatever clients do costs no memory, and the lab nothing.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import Any, Final

import click

from netns.backends.choice import require_root
from netns.cli.commands import lab_named
from netns.cli.options import LAB_OPTION
from netns.errors import BackendError, LabError
from netns.lab.lab import Lab
from netns.observe.lab_metrics import lab_metrics
from netns.signals import signals_raise

TIMEOUT_S: Final = 5.0
PATH: Final = "/metrics"


class Address(click.ParamType[tuple[str, int]]):
    """ADDR:PORT, with an IPv6 address in brackets."""

    name = "ADDR:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return (address, port); fail with one line that describes the error."""
        host, colon, port = value.rpartition(":")
        if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
            self.fail(f"{value!r} is not ADDR:PORT, such as 127.0.0.1:9401", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


@click.command()
@LAB_OPTION
@click.option("--listen", type=Address(), help="Serve them here over HTTP, until the lab is down or Ctrl-C.")
def metrics(name: str | None, listen: tuple[str, int] | None) -> None:
    """Print the counters of a lab's links, and of its relay, as OpenMetrics; --listen serves them to Prometheus."""
    require_root("srd-lab metrics")
    lab = lab_named(name)
    if listen is None:
        click.echo(lab_metrics(lab, as_openmetrics=True)[1], nl=False)
        return
    with _listening(listen, lab) as server:
        host, port = server.server_address[:2]
        click.echo(f"srd-lab: metrics of {lab.name} at http://{_bracketed(str(host))}:{port}{PATH}", err=True)
        with suppress(KeyboardInterrupt), signals_raise():  # Ctrl-C is the usual way to end it
            server.run()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Server(HTTPServer):
    """Serves a lab's metrics, until it is gone."""

    timeout = 1.0
    lab: Lab
    end: LabError | None = None

    def server_bind(self) -> None:
        """Bind; the same as HTTPServer does it, but for a query of the address's name, which would leave the host."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def run(self) -> None:
        """Serve. Raises LabError when the lab is gone."""
        while self.end is None:
            self.handle_request()
        raise self.end

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that leaves is none of the user's business."""

    def handle_timeout(self) -> None:
        """See whether the lab is still there."""
        try:
            self.lab.relay_status()
            self.lab.counters()
        except LabError as error:
            self.end = error


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_S

    def handle(self) -> None:
        """Handle one request, all of which has TIMEOUT_S: a client that sends a byte a second is cut off, too."""
        timer = threading.Timer(TIMEOUT_S, self._cut)
        timer.start()
        try:
            self.handle_one_request()
        finally:
            timer.cancel()

    def _cut(self) -> None:
        with suppress(OSError):  # it has gone
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        """Answer."""
        if self.path.partition("?")[0] != PATH:
            self.send_error(404, f"there is {PATH}")
            return
        try:
            wanted = "application/openmetrics-text" in self.headers.get("Accept", "")
            content_type, text = lab_metrics(self.server.lab, as_openmetrics=wanted)
        except LabError as error:
            self.server.end = error
            self.send_error(503, "the lab is gone")
            return
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Log nothing."""


def _listening(listen: tuple[str, int], lab: Lab) -> _Server:
    host, port = listen
    try:
        server = (_Server6 if ":" in host else _Server)((host, port), _Handler)
    except OSError as error:
        raise BackendError(
            f"--listen {_bracketed(host)}:{port}: cannot listen ({error.strerror}); choose another"
        ) from error
    server.lab = lab
    return server
