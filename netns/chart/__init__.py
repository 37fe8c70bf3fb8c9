"""Charts of a topology: Mermaid text, and a self-contained HTML page."""
