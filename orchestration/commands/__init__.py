"""What commands do that is not a sweep's run."""
