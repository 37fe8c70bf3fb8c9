"""The emulated Nitro/EFA card, which takes the transport off the host, on top of `srd` and `devmem`.

`abi` has EFA's layouts, `device` the card's virtual functions, `verbs` and `pyverbs` the programs' side, `vpc`
the tenants' networks, `chip` the security chip, `trust` signatures, documents and what the processes may do.
"""
