"""Programs on top of SRD, to run as they are and to copy from."""
