"""Observation of a lab: captures, link rates, route probes, counters."""
