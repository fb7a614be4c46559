"""Records as numbers: load, compare, statistics."""
