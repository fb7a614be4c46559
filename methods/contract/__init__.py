"""What every method is: its face, its configuration, the registry."""
