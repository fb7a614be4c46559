"""Searches that several methods take turns with."""
