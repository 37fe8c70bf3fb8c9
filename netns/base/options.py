"""Types of click's options: amounts in the notation of `netns.base.units`, within bounds, and HOST[:PORT].

Each fails with one line that names the value and what would be right. On a command line a bare number is in the base
unit, as iperf3 has it: seconds, bytes, bit/s. `LEGEND` says so in the help of each command that takes an amount.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import click

from netns.base.addresses import parse_target
from netns.base.units import UnitError, parse_duration_us, parse_rate_bps, parse_size

F = TypeVar("F", bound=Callable[..., Any])
N = TypeVar("N", int, float)

_BARE_PREFIX: Final = re.compile(r"[0-9.]\s*[kmgt]\Z", re.IGNORECASE)
"""The end of a rate without its unit."""

json_option: Final = click.option("-J", "--json", "as_json", is_flag=True, help="Print one JSON document.")
"""Of a command that ends with its result."""
json_lines_option: Final = click.option(
    "--json-lines", "as_json", is_flag=True, help="Print what happens as JSON, an object on each line."
)
"""Of a command that runs on."""

LEGEND: Final = {
    "DURATION": "DURATION: 500ms, 90s, 5min, 1h; a bare number is seconds.",
    "SIZE": "SIZE: 64K, 1.5G, 256MiB; K, M, G are powers of 1024, KB, MB of 1000; a bare number is bytes.",
    "RATE": "RATE: 250mbit, 1.5gbit, 10MBps; 250M is 250mbit; a bare number is bit/s.",
}
"""The name of an amount's type, and how it is written."""


def with_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return what adds options to a command, in this order."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def place_option(flag: str, *, variable: str, default: Path, help_text: str) -> Callable[[F], F]:
    """Return the option of a file or a directory whose place an environment variable may change."""
    return click.option(
        flag,
        type=click.Path(path_type=Path),
        envvar=variable,
        default=default,
        show_default=True,
        show_envvar=True,
        help=help_text,
    )


class _Amount(click.ParamType[N]):
    """An amount from `least` to `most`, if there is one."""

    TOO_LITTLE: ClassVar[str]
    TOO_MUCH: ClassVar[str]

    def __init__(self, *, least: N, most: N | None) -> None:
        self._least: N = least
        self._most: N | None = most

    def read(self, text: str) -> N:
        """Return the amount. Raises UnitError."""
        raise NotImplementedError

    def text(self, amount: N) -> str:
        """Return an amount for a message."""
        raise NotImplementedError

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> N:
        """Return the amount; a number is one already, as defaults are."""
        try:
            amount: N = self.read(value) if isinstance(value, str) else value
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if amount < self._least:
            self.fail(f"{value} is too {self.TOO_LITTLE}; at least {self.text(self._least)}", param, ctx)
        if self._most is not None and amount > self._most:
            self.fail(f"{value} is too {self.TOO_MUCH}; at most {self.text(self._most)}", param, ctx)
        return amount


class Size(_Amount[int]):
    """A size such as 256M or 1.5G, as bytes."""

    name = "SIZE"
    TOO_LITTLE, TOO_MUCH = "small", "large"

    def __init__(self, *, least: int = 0, most: int | None = None) -> None:
        super().__init__(least=least, most=most)

    def read(self, text: str) -> int:
        """Return the bytes. Raises UnitError."""
        return parse_size(text)

    def text(self, amount: int) -> str:
        """Return a size for a message."""
        return f"{amount} bytes"


class Duration(_Amount[float]):
    """A duration such as 500ms or 90s, as seconds; a bare number is seconds."""

    name = "DURATION"
    TOO_LITTLE, TOO_MUCH = "short", "long"

    def __init__(self, *, least_s: float = 0.0, most_s: float) -> None:
        super().__init__(least=least_s, most=most_s)

    def read(self, text: str) -> float:
        """Return the seconds. Raises UnitError."""
        with suppress(ValueError):  # it has a unit
            text = f"{float(text):.9f}s"
        return parse_duration_us(text) / 1e6

    def text(self, amount: float) -> str:
        """Return a duration for a message."""
        return f"{amount:.10g} s"


class Rate(_Amount[int]):
    """A rate such as 500mbit or 10MBps, as bit/s; 250M is 250mbit, as iperf3 has it."""

    name = "RATE"
    TOO_LITTLE, TOO_MUCH = "slow", "fast"

    def __init__(self, *, least_bps: int = 0, most_bps: int | None = None) -> None:
        super().__init__(least=least_bps, most=most_bps)

    def read(self, text: str) -> int:
        """Return bit/s. Raises UnitError."""
        return parse_rate_bps(f"{text}bit" if _BARE_PREFIX.search(text) else text)

    def text(self, amount: int) -> str:
        """Return a rate for a message."""
        return f"{amount / 1e6:.10g}mbit" if amount else "0"


interval_option: Final = click.option(
    "-i",
    "--interval",
    "interval_s",
    type=Duration(least_s=0.1, most_s=86400.0),
    default="1s",
    show_default=True,
    help="Time between samples.",
)
"""Of a live view."""


class HostPort(click.ParamType[tuple[str, int]]):
    """HOST[:PORT], with an IPv6 address in brackets if a port follows."""

    name = "HOST[:PORT]"

    def __init__(self, *, default_port: int, example_port: int = 0) -> None:
        """`example_port`: of the example in messages, if it is not the default."""
        self._default_port = default_port
        self._example_port = example_port or default_port

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return (host, port)."""
        try:
            if isinstance(value, tuple):
                return value
            return parse_target(str(value), default_port=self._default_port, example_port=self._example_port)
        except ValueError as error:
            self.fail(str(error), param, ctx)
