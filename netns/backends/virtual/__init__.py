"""The virtual backend: a fabric in virtual time, without a kernel."""
