"""IP packets over SRD: what ENA Express does for unmodified TCP and UDP programs.

Two hosts each have a TUN interface. The kernel hands over what is routed to it, TCP as super-packets of up to 64 KiB
(TSO); each is one SRD message, or a part of one. At the other end it is written to the TUN interface.

    interface, tun      the interface in the kernel, and its descriptors
    vnet, packets       what is read of a packet of the interface
    rewrite, segments   what is changed in it: ECN marks, checksums, segments, fragments
    frames, greeting    what messages hold
    send_memory         where packets lie until they are sent
    fair_queue          the queue towards a peer: fair between flows, and short (RFC 8290)
    order               puts the packets of one flow into their order again
    allowed             which addresses may be behind which peer
    member              one peer of a tunnel
    gateway             moves packets between the interface and the peers
    listener, connector who opens the peers
    encapsulation       the way around SRD: plain UDP
    kept                what TCP sent last while there was no peer
"""
