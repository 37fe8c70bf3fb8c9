"""Shaped links carried by a process between TAP devices, for kernels without netem."""
