"""Pictures of a topology: Mermaid's text, and a page that draws it without a network."""
