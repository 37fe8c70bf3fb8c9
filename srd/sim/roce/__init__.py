"""Why not RoCE: scenarios for RoCE with PFC, with DCQCN, IRN, TCP and SRD, on the same switches (docs/roce.md)."""
