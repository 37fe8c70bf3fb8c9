"""netns.base.addresses: HOST:PORT as text. What is read is tested by the option's type (test_options.py)."""

from __future__ import annotations

import socket

import pytest

from netns.base.addresses import host_port_text, parse_host_port, reached_at


@pytest.mark.parametrize(
    ("host", "text"), [("192.0.2.1", "192.0.2.1:7"), ("fe80::1%eth0", "[fe80::1%eth0]:7"), ("h", "h:7")]
)
def test_host_port_text(host: str, text: str) -> None:
    assert host_port_text(host, 7) == text
    assert parse_host_port(text, example_port=1) == (host, 7)


@pytest.mark.parametrize("host", ["192.0.2.1", "::1", "a.example"])
def test_reached_at__what_listens_at_one_address_is_reached_there(host: str) -> None:
    assert reached_at(host) == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])  # noqa: S104 - of what listens at all
def test_reached_at__all_addresses_is_one_that_this_host_has(host: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((reached_at(host), 0))
