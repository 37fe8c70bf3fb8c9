"""The emulated Nitro/EFA card, which takes the transport off the host, on top of `srd` and `devmem`.

`card` is the process; its virtual functions are of a kind, `efa` or `express`, and share `peers`. `vpc` has the
tenants' networks, `chip` the security chip, `trust` signatures, documents and what the processes may do.
"""
