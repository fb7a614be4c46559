"""What other programs import of Placewright."""
