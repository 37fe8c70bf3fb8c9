"""Protocol cores on the virtual fabric, in virtual time: the one place that knows both."""
