"""Dumbbells to compete on; endless TCP flows in virtual time; ours on sockets."""
