"""Connections that carry messages of any length between queue pairs, for `srd send --card` and `srd recv --card`.

A card's SENDs are as long as a packet, and its queue pairs know no connections. Here two queue pairs, one of either
program, form a connection: `layouts` has what they say to each other, `peer` one end, `listener` how they meet, and
`transport` is what `srd` finds by its entry point.
"""
