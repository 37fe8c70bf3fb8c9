"""What replicas have is compared: all that differs, of however large a volume, and no more once one has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from nitro_emu.ebs import forming
from nitro_emu.ebs.device import BLOCK_BYTES
from nitro_emu.ebs.forming import NotFormedError
from nitro_emu.ebs.server.entries import EXTENT_BLOCKS
from nitro_emu.ebs.view import View

pytestmark = pytest.mark.sources  # replaces a function
EXTENTS = 2000


class Comparison:
    """Of a volume whose extents all differ; `failing` is one at which a replica fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, failing: int | None = None) -> None:
        self.compared: list[int] = []
        self.most_tasks = 0
        self._failing = failing
        monkeypatch.setattr(forming, "_reconcile_extent", self._compare)

    async def run(self) -> None:
        async def all_of(works: Mapping[int, Awaitable[bytes]]) -> dict[int, bytes]:
            return {number: await work for number, work in works.items()}

        async def fetch(_number: int, _command: object, *, length_bytes: int) -> bytes:
            return b"\1" * length_bytes  # odd digests: something is absent

        size_bytes = EXTENTS * EXTENT_BLOCKS * BLOCK_BYTES
        replicas: Any = SimpleNamespace(size_bytes=size_bytes, command=lambda *_, **__: None, all=all_of, fetch=fetch)
        await forming._reconcile(replicas, View(1, replicas=1, members=[0]), marks={0: 1})

    async def _compare(self, *_: object, extent: int, **__: object) -> None:
        self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        self.compared.append(extent)
        await asyncio.sleep(0)
        if extent == self._failing:
            raise NotFormedError("one has failed", failed=0)


async def test_a_large_volume_is_compared_without_a_task_for_each_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = Comparison(monkeypatch)
    await comparison.run()
    assert sorted(comparison.compared) == list(range(EXTENTS))
    assert comparison.most_tasks < 100


async def test_nothing_more_is_compared_when_one_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = Comparison(monkeypatch, failing=5)
    with pytest.raises(NotFormedError):
        await comparison.run()
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(comparison.compared) < 100
    assert len(asyncio.all_tasks()) == 1, "only this test's"
