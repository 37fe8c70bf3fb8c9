"""A few messages by verbs, from a device of a card to one of another card.

    host1$ python3 -m nitro_emu.examples.messages receive efa_0 3              # prints an ADDRESS
    host2$ python3 -m nitro_emu.examples.messages send efa_0 ADDRESS one two three

Both make a context of the device, a protection domain, a completion queue with a channel to sleep at, a queue pair in
state RTS, and registered memory. The receiver's address is what a sender needs: GID, number of the queue pair, qkey.
How it gets there is up to the programs. Messages arrive in any order.
"""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from devmem.region import Region
from netns.base.program import Program
from nitro_emu.cli.options import run_dir_option
from nitro_emu.command import STATUSES
from nitro_emu.efa import verbs
from nitro_emu.errors import NitroError

MESSAGE_BYTES: Final = 1024
"""A SEND is a packet: on Ethernet up to some 1,400 bytes."""
MOST: Final = 64
"""Messages of a run, so that all are posted at once."""
RNR_FOR_EVER: Final = 7


class MessagesEnd:
    """What both ends make of a device; `stack` closes it."""

    def __init__(self, stack: ExitStack, device: str, *, run_dir: Path, qkey: int) -> None:
        self.context = stack.enter_context(verbs.Context(device, directory=run_dir))
        self.pd = verbs.ProtectionDomain(self.context)
        self._channel = verbs.CompletionChannel(self.context)
        self._cq = verbs.CompletionQueue(self.context, 2 * MOST, channel=self._channel)
        options = verbs.QpOptions(max_send_wr=MOST, max_recv_wr=MOST)
        self.qp = verbs.QueuePair(self.pd, send_cq=self._cq, recv_cq=self._cq, options=options)
        self.qp.to_rts(qkey=qkey, rnr_retry=RNR_FOR_EVER)
        self.region = Region(MOST * MESSAGE_BYTES, name="messages")
        self.memory = verbs.MemoryRegion(self.pd, self.region)

    def sge(self, number: int, *, length: int = MESSAGE_BYTES) -> verbs.Sge:
        """Return the memory of a message."""
        return verbs.Sge(self.memory.address + number * MESSAGE_BYTES, length, self.memory.lkey)

    def completion(self) -> verbs.WorkCompletion:
        """Wait for one, asleep. Raises NitroError for one with an error."""
        while not (found := self._cq.poll(1)):
            self._cq.request_notify()
            if found := self._cq.poll(1):  # it may have come before the card has seen the request
                break
            self._channel.get_event()
        if found[0].status is not verbs.WcStatus.SUCCESS:
            raise NitroError(f"a request ended with {found[0].status.name}; see nitro-card logs")
        return found[0]


@click.group("messages", cls=Program, statuses=STATUSES)
def cli() -> None:
    """Send messages through the queues of a card's devices."""


@cli.command()
@run_dir_option
@click.argument("device")
@click.argument("count", type=click.IntRange(1, MOST))
def receive(*, device: str, count: int, run_dir: Path) -> None:
    """Print an address, and COUNT messages that come to it."""
    qkey = secrets.randbits(31)  # the upper half is for privileged programs
    with ExitStack() as stack:
        end = MessagesEnd(stack, device, run_dir=run_dir, qkey=qkey)
        end.qp.post_recv(*(verbs.RecvRequest(number, (end.sge(number),)) for number in range(count)))
        click.echo(f"{end.context.attributes.gid.hex()}/{end.qp.number}/{qkey}")
        for _ in range(count):
            arrived = end.completion()
            start = arrived.wr_id * MESSAGE_BYTES
            click.echo(end.region[start : start + arrived.byte_len].decode(errors="replace"))


@cli.command()
@run_dir_option
@click.argument("device")
@click.argument("address")
@click.argument("messages", nargs=-1, required=True)
def send(*, device: str, address: str, messages: tuple[str, ...], run_dir: Path) -> None:
    """Send MESSAGES to ADDRESS, as the receiver has printed it."""
    try:
        gid, qpn, qkey = address.split("/")
        to = bytes.fromhex(gid), int(qpn), int(qkey)
    except ValueError:
        raise click.UsageError(f"{address}: is no GID/QPN/QKEY; take what the receiver prints") from None
    contents = [message.encode() for message in messages]
    if len(contents) > MOST or max(map(len, contents)) > MESSAGE_BYTES:
        raise click.UsageError(f"give up to {MOST} messages of up to {MESSAGE_BYTES} bytes")
    with ExitStack() as stack:
        end = MessagesEnd(stack, device, run_dir=run_dir, qkey=to[2])
        handle = verbs.AddressHandle(end.pd, gid=to[0])
        requests = []
        for number, content in enumerate(contents):
            start = number * MESSAGE_BYTES
            end.region[start : start + len(content)] = content
            sges = (end.sge(number, length=len(content)),)
            requests.append(verbs.SendRequest(handle, to[1], to[2], number, sges))
        end.qp.post_send(*requests)
        for _ in requests:
            end.completion()


if __name__ == "__main__":
    cli()
