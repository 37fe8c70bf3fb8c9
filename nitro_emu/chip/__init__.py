"""The security chip: a process that measures the card, keeps its secrets, and signs what it attests."""
