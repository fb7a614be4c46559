"""The shapes that the papers print."""
