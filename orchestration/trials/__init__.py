"""One trial from its method to its record."""
