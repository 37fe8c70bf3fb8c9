"""Traces in files: written while packets move; read, summed up and drawn afterwards. The format: docs/trace.md."""
