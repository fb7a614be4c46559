"""CP-SAT: the method and its model of a placement."""
