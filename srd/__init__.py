"""Open SRD: a reliable datagram transport that sprays one flow over many paths and delivers out of order."""
