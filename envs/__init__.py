"""The problem and everything that scores a placement."""
