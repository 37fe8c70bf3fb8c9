"""Transfers between device memories: SRD into bound regions, and kernel TCP with copies."""
