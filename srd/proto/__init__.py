"""The SRD protocol, sans-I/O: no blocking, sleeping, clock, random numbers, sockets or access to payload.

Time and randomness are arguments. Packets come in as batches of headers plus the location of the payload, and go out as
bursts. The same core runs over real sockets, in the emulated card, and in virtual time. `endpoint.core` documents
the call order; `srd/PROTOCOL.md` is the specification, and `wire` its only implementation.
"""
