"""Protocol cores on the virtual fabric, in virtual time; the only package that depends on both."""
