"""`scripts/bench`: cases/ has a module per case, registry.py lists them; srd.sim runs cores in virtual time."""
