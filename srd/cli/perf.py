"""`srd perf server` and `srd perf client`: iperf3's flags and output, for SRD, TCP and MPTCP."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from netns.units import UnitError, parse_duration_us, parse_rate_bps, parse_size
from srd.cli.options import Size, busy_poll_option, is_directory, run
from srd.cli.security import FINGERPRINT, authorized_keys_option, known_hosts_option, security_config, security_options
from srd.config import EndpointConfig
from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.io.addresses import host_port_text
from srd.peer import Peer
from srd.perf.client import Client, Target
from srd.perf.errors import PerfError
from srd.perf.iperf_json import document, error_document
from srd.perf.meter import Interval
from srd.perf.parameters import (
    MAX_OMIT_S,
    MAX_SECONDS,
    MAX_TOTAL_BYTES,
    SRD_BLOCK_BYTES,
    TCP_BLOCK_BYTES,
    Direction,
    Parameters,
    Protocol,
)
from srd.perf.results import Report, Start, describe
from srd.perf.server import Server
from srd.perf.tcp_socket import BBR, CUBIC
from srd.perf.text import TextReport, listening_text
from srd.printable import printable
from srd.proto.config import MAX_PATHS, ProtocolConfig
from srd.secure.config import Keys, SecurityConfig

PORT: Final = 5201
"""iperf3's, so that what a firewall allows for it is allowed for this."""
CONNECT_TIMEOUT_S: Final = 10.0


class Seconds(click.ParamType[float]):
    """A duration in seconds; a bare number is in `bare_s`, as in iperf3."""

    name = "TIME"

    def __init__(self, *, most_s: float, bare_s: float = 1.0) -> None:
        self._most_s, self._bare_s = most_s, bare_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; fail with one line that describes the error."""
        try:
            seconds = float(value) * self._bare_s
        except ValueError:
            try:
                seconds = parse_duration_us(value) / 1e6
            except UnitError as error:
                self.fail(str(error), param, ctx)
        if not 0 <= seconds <= self._most_s:
            self.fail(f"{value} is out of range; give 0 to {self._most_s:.10g}s", param, ctx)
        return seconds


class Rate(click.ParamType[int]):
    """A rate in bit/s, as netns.units has it; 10M and 1G are iperf3's for 10mbit and 1gbit."""

    name = "RATE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bits per second; fail with one line that describes the error."""
        text = str(value)
        try:
            rate_bps = parse_rate_bps(f"{text}bit" if text[-1:].lower() in tuple("kmgt") else value)
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if not 0 <= rate_bps <= 10**13:
            self.fail(f"{value} is out of range; give up to 10tbit", param, ctx)
        return rate_bps


class Server_(click.ParamType[tuple[str, str | None]]):  # noqa: N801
    """HOST, or HOST#FINGERPRINT."""


@click.group()
def perf() -> None:
    """Measure between two machines as iperf3 does: SRD, TCP and MPTCP over the same addresses."""


_ = (replace, Iterator, contextmanager, sys, parse_size, Callable, dataclass, is_directory, PerfError, error_document)
