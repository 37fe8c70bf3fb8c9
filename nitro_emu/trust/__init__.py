"""The trust of the card: signatures, certificates, measurements, documents, and what its process may do."""
