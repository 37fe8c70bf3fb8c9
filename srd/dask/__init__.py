"""`srd://` for Dask's distributed: an entry point that distributed finds by itself.

`backend` is what it asks for; `comm` a connection, one peer each; `endpoints` who shares which endpoint, and for how
long; `frames` what passes through a peer.
"""
