"""Studies that wait for their turn on a cluster."""
