"""Networks and features that several methods use."""
