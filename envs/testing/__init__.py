"""What every evaluator must do, as tests that a package outside the tree can import; pytest is imported here alone."""
