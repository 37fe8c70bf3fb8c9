"""The event loops of the asyncio tests of `srd`: both kinds, where the tested modules use the loop directly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

STOCK: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
BOTH: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {**STOCK, "uvloop": uvloop.new_event_loop}
ON_BOTH = {"test_cancellation.py", "test_driver.py", "test_endpoint.py", "test_opening.py"}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return BOTH if item.path.name in ON_BOTH else STOCK
