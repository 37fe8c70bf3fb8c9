"""ENA Express: a tenant's network interface, whose packets are SRD messages.

`function` is a virtual function of this kind, `interface` the TUN interface in the tenant's namespace, `destinations`
what arrives from peers, `handover` what a live update hands on.
"""
