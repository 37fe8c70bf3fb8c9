"""scripts.benches.torture.attacker: an endpoint survives its packets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from scripts.benches.torture.attacker import Attacker
from scripts.benches.torture.plans import AttackerPlan
from scripts.benches.torture.scenario import ATTACKS, LIE
from srd.config import EndpointConfig
from srd.endpoint import Endpoint


async def test_attacker__an_endpoint_survives_each_kind(tmp_path: Path) -> None:
    async with await Endpoint.listen("127.0.0.1", port=0, config=EndpointConfig()) as endpoint:
        kinds = dict.fromkeys((kind for kind in (*ATTACKS, LIE) if kind != "icmp"), 1.0)
        plan = AttackerPlan(2000, trains=0.5, kinds=kinds, seconds=1.0)
        target = ("127.0.0.1", endpoint.address[1])
        attacker = Attacker(target, source="127.0.0.2", rng=Random(1), plan=plan, directory=tmp_path)
        await asyncio.to_thread(attacker.run)
        attacker.close()
