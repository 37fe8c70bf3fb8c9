"""Sockets, batches of datagrams, timestamps, and the loop that drives a protocol core over them."""
