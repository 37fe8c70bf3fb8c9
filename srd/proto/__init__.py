"""The SRD protocol, sans-I/O: it cannot block, sleep, read a clock, roll dice, open a socket or touch payload.

Time and randomness come in as arguments; packets come in as batches of headers plus where the payload lies, and go
out as bursts. The same core runs over real sockets, in the card, and in virtual time. `endpoint` documents the call
order; `srd/PROTOCOL.md` is the specification and `wire.data` its only implementation.
"""
