"""Real measurement on this machine."""
