"""The front of a volume: an NBD server, as libnbd, qemu, fio and the kernel's client speak it.

    async with Server(front, name="vol-1") as server:
        server.listen_unix(Path("/run/vol-1.sock"))

Why a server of our own, and not nbdkit with a plugin in Python: nbdkit calls the plugin from threads of its own, under
the interpreter's lock, and each request crosses both. 16 KiB random reads, 16 at a time, in memory, on two cores:
nbdkit's Python plugin 23 thousand a second, an asyncio server 66 thousand; one at a time 14 and 42 thousand.

Rules.
1. The protocol is NetworkBlockDevice/nbd's doc/proto.md: fixed newstyle, and of it what clients use (`wire`).
2. What a client sends is bounded in size, its negotiation in time, its open requests in number and bytes. Whatever it
   does ends its own connection only.
3. Requests under way are carried out also when their client has gone, and a server that closes waits for them: a write
   that were cut short might still land behind a later one.
4. Nobody is authenticated: a Unix socket is its user's (0600), over TCP whoever reaches the port has the volume.
"""
