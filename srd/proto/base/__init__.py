"""What imports nothing of ours: errors, sets of PSNs, a queue, the pacer's bucket, the interface to encryption."""
