"""DOPPLER: the method, its episode, features and network."""
