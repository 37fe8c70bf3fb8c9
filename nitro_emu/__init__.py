"""The emulated Nitro/EFA card: queues, tenants, attestation and volumes on top of `srd` and `devmem`.

No code yet. It will hold the card that takes the transport off the host: descriptor rings in EFA's layout
(`efa`, `rings`), verbs objects (`pd`, `ah`, `qp`, `cq`), tenants and their VPC rules, measured boot and
attestation (`trust`, `attest`), and network volumes (`volume`).
"""
