"""The relay backend: a process carries shaped links between TAP devices, for kernels without netem."""
