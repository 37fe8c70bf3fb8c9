"""The fabric in virtual time, without a kernel."""
