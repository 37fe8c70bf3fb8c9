"""The queues of a card's device for asyncio, in the shape of `srd`'s own API.

    async with await Device.open("efa_0") as device:
        qp = await device.queue_pair()
        print(qp.address.text())  # what the other end needs to know
        to = await device.remote(address_of_the_other_end)
        status = await qp.send(to, b"hello", immediate=7)
        with await qp.recv() as message:
            print(message.source, message.gather())

1. Requests return a future of their completion status. Requests that do not fit into the send queue wait here.
2. A `Slice` of registered `Memory` is sent in place, without a copy. Other bytes are copied once, which is counted.
3. Received messages lie in buffers of the queue pair, which are posted again when the message is released.
4. When the card dies, every open request ends with LOCAL_ERROR_QP_INTERNAL_ERROR, and everything else that waits, or
   is called later, raises VerbsError (EIO). Open the device again then.
5. Commands to the card run in a thread, so that a card that is slow to answer does not stop the event loop.
"""

from nitro_emu.aio.address import QpAddress
from nitro_emu.aio.device import Device
from nitro_emu.aio.handles import Remote
from nitro_emu.aio.mailbox import Receiver
from nitro_emu.aio.memory import Memory, Slice
from nitro_emu.aio.message import Message, Source, WriteNotification
from nitro_emu.aio.queue_pair import QpSettings, QueuePair
from nitro_emu.errors import VerbsError
from nitro_emu.verbs import Access
from srd.proto.wire.status import Status

__all__ = [
    "Access",
    "Device",
    "Memory",
    "Message",
    "QpAddress",
    "QpSettings",
    "QueuePair",
    "Receiver",
    "Remote",
    "Slice",
    "Source",
    "Status",
    "VerbsError",
    "WriteNotification",
]
