"""Device to device: SRD into bound regions, and the classic way with copies around kernel TCP."""
