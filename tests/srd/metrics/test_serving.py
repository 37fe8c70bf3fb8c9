"""srd.metrics.serving: an endpoint's metrics over HTTP, while data is sent."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from srd.endpoint import Endpoint
from srd.errors import SrdError
from srd.metrics import serving as module
from srd.metrics.sample import parse_untrusted
from srd.metrics.serving import serving
from tests.patience import PATIENCE_S
from tests.srd.loopback import pair, receive, send
from tests.srd.metrics.test_exposition import families


async def get(address: tuple[str, int], path: str, *, accept: str = "application/openmetrics-text") -> str:
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    return body.decode()


def samples(text: str) -> dict[str, float]:
    return {
        sample.name: sample.value for _, _, found in families(text, as_openmetrics=True).values() for sample in found
    }


async def test_serving__metrics_and_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_AGE_S", 0.0)
    said: list[str] = []
    async with pair() as (a, _, to_b, from_a), serving(("127.0.0.1", 0), a, title="t", say=said.append) as address:
        assert address is not None
        assert said == [f"metrics at http://127.0.0.1:{address[1]}/metrics"]
        assert samples(await get(address, "/metrics"))["srd_tx_bytes_total"] == 0
        await send(to_b, b"x" * 100_000)
        await receive(from_a)
        read = samples(await get(address, "/metrics"))
        assert read["srd_tx_bytes_total"] == read["srd_peer_tx_bytes_total"] == a.stats().tx_bytes > 100_000
        assert "# TYPE srd_tx_bytes_total counter" in await get(address, "/metrics", accept="text/plain")
        sample = parse_untrusted(await get(address, "/peers"))
        assert (sample.title, sample.tx_bytes, sample.peers[0].number) == ("t", a.stats().tx_bytes, to_b.number)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_serving__many_who_ask_at_once_get_one_snapshot() -> None:
    async with pair() as (a, *_), serving(("127.0.0.1", 0), a, title="t", say=lambda _: None) as address:
        assert address is not None
        read = 0

        class Counting:
            """Counts how often the endpoint is read."""

            def __getattr__(self, name: str) -> object:
                nonlocal read
                read += name == "ended_stats"
                return getattr(a, name)

        source = module.SnapshotSource(Counting(), title="t", render=lambda *_, **__: ("", b""))  # type: ignore[arg-type]
        await asyncio.gather(*(source.metrics("") for _ in range(50)), *(source.peers("") for _ in range(50)))
        source.close()
        assert read == 1
        answers = await asyncio.gather(*(get(address, "/peers") for _ in range(8)))
        assert len({json.loads(answer)["at_s"] for answer in answers}) <= 2


async def test_serving__without_an_address() -> None:
    async with pair() as (a, *_), serving(None, a, title="t", say=pytest.fail) as address:
        assert address is None


async def test_serving__names_what_is_missing_bad_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "srd.metrics.exposition", raising=False)

    async def enter(endpoint: Endpoint) -> None:
        async with serving(("127.0.0.1", 0), endpoint, title="t", say=pytest.fail):
            pytest.fail("it was served")

    async with pair() as (a, *_):
        with pytest.raises(SrdError, match=r"^--metrics: needs prometheus_client; .* pip install '\.\[cli\]'$"):
            await enter(a)
