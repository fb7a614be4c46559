"""DOPPLER's simulator: no resource idles while something could run on it."""
