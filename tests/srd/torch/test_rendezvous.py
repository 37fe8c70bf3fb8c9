"""srd.torch.rendezvous: who says that it is a rank."""

from __future__ import annotations

import pytest

from srd import Endpoint, EndpointConfig, Plain
from tests.patience import PATIENCE_S
from tests.srd.torch.ranks import GroupError, join, listen

HOST = "127.0.0.1"


@pytest.mark.parametrize(
    ("says", "why"), [(b"\xff" * 5000, "5000 bytes"), (b"", "0 bytes"), (bytes(4), "rank 0, which is no other rank")]
)
async def test_join__a_peer_that_is_no_rank(says: bytes, why: str) -> None:
    endpoint = await listen(HOST, key=b"")
    entries = [{"host": HOST, "port": endpoint.address[1], "leaf": ""}, {"host": HOST, "port": 1, "leaf": ""}]
    async with endpoint, Endpoint.open(towards=HOST, config=EndpointConfig(security=Plain())) as other:
        peer = await other.connect(*endpoint.address)
        await peer.send(says)
        with pytest.raises(GroupError, match=why):
            await join(endpoint, entries, rank=0, timeout_s=PATIENCE_S)
