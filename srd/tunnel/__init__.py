"""IP packets over SRD: what ENA Express does for unmodified TCP and UDP programs.

Two hosts each have a TUN interface. The kernel hands over what is routed to it, TCP as super-packets of up to 64 KiB
(TSO); each is one SRD message, or a part of one. At the other end it is written to the TUN interface.

    interface, tun             the interface in the kernel, and its descriptors
    packets, rewrite, segments what is read of an inner packet, and what is changed in it: ECN marks, checksums, segments
    frames                     what a message holds: packets with the place of each in its flow
    fair_queue                 the queue towards the network: fair between flows, and short (RFC 8290)
    order                      puts the packets of one inner flow into their order again
    members                    which addresses are behind which peer
    gateway                    moves packets between one TUN interface and an engine's peers
    listener, connector        who opens the peers
"""
