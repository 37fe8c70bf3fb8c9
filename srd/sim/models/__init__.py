"""Models of other transports, to compare with: RoCEv2 with and without DCQCN, IRN, TCP (CUBIC, BBR, DCTCP).

Rules.
1. They are models, not implementations: what competes for a queue is how many packets are sent and when. There is no
   handshake, no byte stream, no receive window, and no time in hosts.
2. A transport is a `FlowSender` and a `FlowReceiver` (flow.py): packets by number, `now` as an argument, nothing of
   the fabric. The `Nic` puts them on a fabric: any virtual fabric, with or without lossless switches.
3. Each rule names its paper or standard, each constant its unit and source.
"""
