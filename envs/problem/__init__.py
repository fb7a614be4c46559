"""What is placed and what comes of it: graph, network, problem, measurement, and the errors of bad input."""
