"""Both ends of the benches on real sockets, as one program: `python -m scripts.benches.veth.worker ROLE ...`."""
