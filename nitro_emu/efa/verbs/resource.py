"""What a context has the card create: protection domains, address handles, and the base of all such objects."""

from __future__ import annotations

import weakref

from nitro_emu.closing import Closing
from nitro_emu.efa.abi import commands
from nitro_emu.efa.verbs.context import Context
from nitro_emu.efa.verbs.link import CardConnection


class Resource(Closing):
    """Base class. A context manager; closing twice is allowed."""

    def __init__(self, link: CardConnection, *, destroy: commands.Command) -> None:
        self._link = link
        self._destroy = destroy
        self._abandon = weakref.finalize(self, link.abandon, destroy)
        self._abandon.atexit = False  # the connection's end does it
        self.closed = False
        """Whether it has been closed, or its context has."""
        link.resources.add(self)

    def close(self) -> None:
        """Have the card destroy it, and release its memory here. Raises VerbsError while it is in use (EBUSY)."""
        if not self.closed:
            self._link.destroy(self._destroy)
            self.release()

    def release(self) -> None:
        """Release what it holds in this process. Its context does this when it is closed."""
        self.closed = True
        self._abandon.detach()


class ProtectionDomain(Resource):
    """A protection domain. `number` is the card's."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.number = context.link.ask(commands.AllocPd()).pd
        super().__init__(context.link, destroy=commands.DeallocPd(self.number))


class AddressHandle(Resource):
    """A handle for the device with a GID. `number` is what its completions have as `ah`."""

    def __init__(self, pd: ProtectionDomain, *, gid: bytes) -> None:
        """Create a handle. It does not wait for the device, which may not even exist."""
        self.pd = pd
        self.gid = bytes(gid)
        self.number = pd.context.link.ask(commands.CreateAh(self.gid, pd.number)).ah
        super().__init__(pd.context.link, destroy=commands.DestroyAh(self.number, pd.number))
