"""A program to be killed: `python victim.py RUN_DIR DEVICE`. It has objects, requests in flight, and waits."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from nitro_emu.efa.verbs import AddressHandle
from nitro_emu.gid import gid_of
from tests.nitro_emu.cards import Card, Tenant
from tests.srd.cli.processes import Process

NOBODY = gid_of("127.255.255.1", port=9)


def main() -> None:
    """Open the device, say so, and wait for a signal."""
    run_dir, name = sys.argv[1:]
    card = Card(Process.__new__(Process), Path(run_dir), Path())
    tenant = Tenant(card, name)
    tenant.receive(1, tenant.sge(64))
    nobody = AddressHandle(tenant.pd, gid=NOBODY)
    tenant.send(nobody, 1, tenant.sge(64), wr_id=2)
    own = tenant.handle(tenant)
    tenant.retry(7)
    tenant.receive(1, tenant.sge(64))
    tenant.send(own, 0xFFF, tenant.sge(64), wr_id=3)
    found = {"gid": tenant.gid.hex(), "qp": tenant.qp.number, "rkey": tenant.mr.rkey, "address": tenant.mr.address}
    print(json.dumps({"event": "ready", **found}), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
