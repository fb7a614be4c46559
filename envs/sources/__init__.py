"""Files and descriptions to problems."""
