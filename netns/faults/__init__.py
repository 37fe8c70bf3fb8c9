"""Failures of links and nodes, and schedules of them."""
