"""How long an operation takes where."""
