"""Protection domains, and address handles: queue pairs, memory and handles of one domain do not work with another's."""

from __future__ import annotations

from nitro_emu.efa.abi import commands, replies
from nitro_emu.efa.verbs.context import Context
from nitro_emu.efa.verbs.link import expect
from nitro_emu.efa.verbs.resource import Resource


class ProtectionDomain(Resource):
    """A protection domain. `number` is the card's."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.number = expect(context.link.ask(commands.AllocPd()), kind=replies.AllocPdReply).pd
        super().__init__(context.link, destroy=commands.DeallocPd(self.number))


class AddressHandle(Resource):
    """A handle for the device with a GID. `number` is what its completions have as `ah`."""

    def __init__(self, pd: ProtectionDomain, *, gid: bytes) -> None:
        """Create a handle. It does not wait for the device, which may not even exist."""
        self.pd = pd
        self.gid = bytes(gid)
        answer = pd.context.link.ask(commands.CreateAh(self.gid, pd.number))
        self.number = expect(answer, kind=replies.CreateAhReply).ah
        super().__init__(pd.context.link, destroy=commands.DestroyAh(self.number, pd.number))
