"""Sweep definitions: reading YAML with line numbers, checking all of it, expanding it to trials."""
