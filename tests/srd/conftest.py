"""The event loops of the asyncio tests of `srd`: both kinds for the driver, whose readers and callbacks are in it.

What is above it uses tasks and futures. With uvloop the commands' tests test it, as the commands run on uvloop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

STOCK: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
BOTH: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {**STOCK, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return BOTH if item.path.name == "test_driver.py" else STOCK
