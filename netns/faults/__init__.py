"""Failures of links and nodes, and schedules that play them."""
