"""What MLflow is told."""
