"""What packets look like: data headers, control packets, statuses."""
