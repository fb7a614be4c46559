"""Device networks: synthetic ones and named machines."""
