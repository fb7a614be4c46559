"""Everything that proposes placements; one file a method."""
