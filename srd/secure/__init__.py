"""Encryption and authentication: the handshake, packet protection, keys and whom they belong to."""
