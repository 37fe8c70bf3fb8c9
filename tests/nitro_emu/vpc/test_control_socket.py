"""The control plane's pushes, taken by a card's own control socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key

from nitro_emu.card.control import CardControlServer
from nitro_emu.log_ring import LogRing
from nitro_emu.vpc.document import open_map_untrusted, sign_map
from nitro_emu.vpc.model import MAX_INTERFACES
from nitro_emu.vpc.push import CardLink, PushOutcome, PushState, Signed
from tests.nitro_emu.fake_card import FakeCard, config_in
from tests.nitro_emu.vpc.maps import interface, map_of, two_vpcs
from tests.patience import PATIENCE_S

KEY = generate_private_key(SECP384R1())
NOW_S = 1000.0


def largest() -> dict[str, Any]:
    """Return a map with as many interfaces as there may be."""
    content = two_vpcs()
    del content["vpcs"]["green"]
    content["vpcs"]["red"]["subnets"] = {"a": "172.31.0.0/16"}
    content["vpcs"]["red"]["interfaces"] = {
        f"a-name-of-some-length-{index}": interface(f"172.31.{1 + index // 250}.{1 + index % 250}", port=1 + index)
        for index in range(MAX_INTERFACES)
    }
    return content


@asynccontextmanager
async def card_at(directory: Path, *, over: str) -> AsyncIterator[tuple[FakeCard, str]]:
    card = FakeCard(config_in(directory))
    server = CardControlServer(card, log=LogRing(), image="ab" * 48)
    await server.start()
    try:
        port = await server.serve_tcp(("127.0.0.1", 0))
        yield card, f"127.0.0.1:{port}" if over == "tcp" else str(directory / "control.sock")
    finally:
        await server.close()


@pytest.mark.parametrize("over", ["unix", "tcp"])
@pytest.mark.parametrize("content", [two_vpcs(), largest()], ids=["small", "largest"])
async def test_card_takes_maps(tmp_path: Path, over: str, content: dict[str, Any]) -> None:
    signed = Signed(version=7, document=sign_map(map_of(content), version=7, issued_at_s=NOW_S, key=KEY))
    async with card_at(tmp_path, over=over) as (card, address):
        link = CardLink(address, timeout_s=PATIENCE_S)
        assert await link.push(lambda: signed) == PushOutcome(state=PushState.ACCEPTED, version=7)
        link.close()
        (document,) = card.maps
    assert open_map_untrusted(document, key=KEY.public_key(), now_s=NOW_S).map == map_of(content)


async def test_cards_reason_is_what_the_control_plane_reports(tmp_path: Path) -> None:
    async with card_at(tmp_path, over="unix") as (_, address):
        link = CardLink(address, timeout_s=PATIENCE_S)
        outcome = await link.push(lambda: Signed(version=7, document=b"forged"))
        link.close()
    assert outcome == PushOutcome(state=PushState.REFUSED, version=7, reason="the signature does not hold")
