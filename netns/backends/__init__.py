"""Backends, which realise a topology: the kernel's netem, a relay process between TAPs, or virtual time."""
