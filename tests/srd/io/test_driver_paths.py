"""srd.io.driver: sockets of standby paths."""

from __future__ import annotations

import errno

import pytest

from tests.failing import refusing
from tests.srd.io.node import node, nodes


async def test_driver__a_standby_path_gets_a_port_when_it_is_opened() -> None:
    async with nodes(paths=2) as (one, two):
        ports = {one.driver._sockets.of_path(path).getsockname()[1] for path in (0, 1, 2, 5, 5)}
        assert len(ports) == 4
        assert len(one.driver._sockets.paths) == 6
        late = one.driver._sockets.of_path(5)
        two.connect(late.getsockname())
        event = await two.end()
        assert "refused" in event.reason, "packets to it are received"
    assert late.fileno() == -1, "it is closed with the others"


async def test_driver__without_a_free_port_a_path_shares_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(accepting=False, paths=2) as one:
        monkeypatch.setattr(one.driver._sockets, "_open_socket", refusing(errno.EMFILE))
        assert one.driver._sockets.of_path(5) is one.sockets[1]
        assert len(one.driver._sockets.paths) == 2
