"""Links that look like real ones, for every peer."""
