"""`make bench`: how fast things are. A benchmark reports; that results are right is for the tests beside it."""
