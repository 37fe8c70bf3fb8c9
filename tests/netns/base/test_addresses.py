"""netns.base.addresses: HOST:PORT as text. What is read is tested by the option's type (test_options.py)."""

from __future__ import annotations

import pytest

from netns.base.addresses import host_port_text, parse_host_port


@pytest.mark.parametrize(
    ("host", "text"), [("192.0.2.1", "192.0.2.1:7"), ("fe80::1%eth0", "[fe80::1%eth0]:7"), ("h", "h:7")]
)
def test_host_port_text(host: str, text: str) -> None:
    assert host_port_text(host, 7) == text
    assert parse_host_port(text, example_port=1) == (host, 7)
