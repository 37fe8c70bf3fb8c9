"""Ordered byte streams over the messages of a peer, with asyncio's StreamReader and StreamWriter."""
