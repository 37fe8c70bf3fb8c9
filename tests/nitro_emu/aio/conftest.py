"""A card with two devices, as a process, for all tests of a module; and both kinds of event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop

from tests.nitro_emu.card_process import loopback_vf, running_card


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The card's directory of sockets."""
    plain = "security: {mode: plain}"
    vfs = [loopback_vf("efa_0", more=plain), loopback_vf("efa_1", more=plain)]
    with running_card(tmp_path_factory.mktemp("card"), vfs=vfs) as directory:
        yield directory
