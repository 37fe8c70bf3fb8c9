"""Compares the relay with the kernel's netem: the same packets through both, and statistics on the output."""
