"""One suite for all protocols: each scenario runs over every variant that promises what it tests."""
