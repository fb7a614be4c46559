"""A sweep from its first trial to its last."""
