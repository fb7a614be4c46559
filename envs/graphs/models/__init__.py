"""Definitions of named models with seeded random weights (no downloads). Capturing them into graphs does not belong here."""
