"""How much may be in flight, and when it goes: controllers, the pacer, limits."""
