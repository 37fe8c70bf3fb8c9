"""Directories for files, and the event loops of the asyncio tests of `srd`.

The tests of the driver and of the tunnel's interface run on both kinds of loop, as their readers are in the loop. What
is above the driver uses tasks and futures. With uvloop the commands' tests test it, as the commands run on uvloop.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

STOCK: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
BOTH: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {**STOCK, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return BOTH if item.path.name in {"test_driver.py", "test_interface.py"} else STOCK


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    made = tmp_path / "inputs"
    made.mkdir()
    return made


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    made.mkdir()
    return made


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give names addresses, in this order, as a resolver would: `hosts(name=["fd00::1", "192.0.2.1"])`."""
    look_up = socket.getaddrinfo

    def give(**table: list[str]) -> None:
        def look_up_here(host: Any, *more: Any, **named: Any) -> list[Any]:
            return [found for address in table.get(host, [host]) for found in look_up(address, *more, **named)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up_here)

    return give
