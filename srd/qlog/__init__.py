"""qlog trace files: written while packets move; read, summarised and plotted afterwards. Format: docs/trace.md."""
