"""Topologies as data: hosts, switches, links; files, generators, addresses, routes."""
