"""Malformed and hostile input, drawn by seed, through the command line: ``python -m tests.fuzz``."""
