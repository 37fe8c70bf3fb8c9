"""Dumbbells to compete on, on sockets."""
