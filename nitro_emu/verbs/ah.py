"""Address handles: where a send request goes."""

from __future__ import annotations

from nitro_emu.abi import admin
from nitro_emu.verbs.link import expect
from nitro_emu.verbs.pd import ProtectionDomain
from nitro_emu.verbs.resource import Resource


class AddressHandle(Resource):
    """A handle for the device with a GID. `number` is what its completions have as `ah`."""

    def __init__(self, pd: ProtectionDomain, *, gid: bytes) -> None:
        """Create a handle. It does not wait for the device, which may not even exist."""
        self.pd = pd
        self.gid = bytes(gid)
        answer = pd.context.link.ask(admin.CreateAh(self.gid, pd.number))
        self.number = expect(answer, kind=admin.CreateAhReply).ah
        super().__init__(pd.context.link, destroy=admin.DestroyAh(self.number, pd.number))
