"""What is done with the benchmark besides running it."""
