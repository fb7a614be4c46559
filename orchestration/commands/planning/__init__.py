"""What a sweep will cost before it starts: counts, measured rates, reference rates."""
