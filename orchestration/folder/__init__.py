"""What a sweep leaves on disk: the ledger and its definition."""
