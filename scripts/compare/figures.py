"""Formats figures for display, the same in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "-"


def mbit(bps: float) -> str:
    """Write a rate in Mbit/s, without the unit: "964", "0.4"."""
    value = bps / 1e6
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def gbit(bps: float) -> str:
    """Write a capacity with its unit: "1 Gbit/s", "250 Mbit/s"."""
    return f"{bps / 1e9:g} Gbit/s" if bps >= 1e9 else f"{bps / 1e6:g} Mbit/s"


def seconds(value: float | None) -> str:
    """Write a duration in seconds, without the unit."""
    return MISSING if value is None else f"{value:.2f}"


def percent(fraction: float | None) -> str:
    """Write a share with its unit; small ones with two decimals."""
    if fraction is None:
        return MISSING
    return f"{100 * fraction:.2f} %" if fraction < 0.1 else f"{100 * fraction:.0f} %"


def milliseconds(value: float) -> str:
    """Write a duration in ms, without the unit."""
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}".replace(",", " ")


def mebibytes(count: int) -> str:
    """Write a size with its unit."""
    return f"{count / 2**20:.4g} MiB" if count >= 2**20 else f"{count} bytes"


def path_shares(fractions: Sequence[float]) -> str:
    """Write the shares of the paths in whole percent: "25 25 25 25"."""
    return " ".join(f"{100 * fraction:.0f}" for fraction in fractions)


def verification(*, completed: bool, sha256_ok: bool) -> str:
    """Write the result of the transfer."""
    if not completed:
        return "incomplete"
    return "ok" if sha256_ok else "WRONG"
