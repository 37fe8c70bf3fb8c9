"""The emulated Nitro/EFA card: queues, tenants, attestation and volumes on top of `srd` and `devmem`.

No code yet. The card is to offload the transport from the host: descriptor rings in EFA's layout
(`efa`, `rings`), verbs objects (`pd`, `ah`, `qp`, `cq`), tenants and their VPC rules, measured boot and
attestation (`trust`, `attest`), and network volumes (`volume`).
"""
