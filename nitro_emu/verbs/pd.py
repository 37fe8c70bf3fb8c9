"""Protection domains: queue pairs, memory and address handles of one do not work with those of another."""

from __future__ import annotations

from nitro_emu.abi import admin
from nitro_emu.verbs.context import Context
from nitro_emu.verbs.link import expect
from nitro_emu.verbs.resource import Resource


class ProtectionDomain(Resource):
    """A protection domain. `number` is the card's."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.number = expect(context.link.ask(admin.AllocPd()), kind=admin.AllocPdReply).pd
        super().__init__(context.link, destroy=admin.DeallocPd(self.number))
