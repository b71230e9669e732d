"""What decides and never waits: pure functions and memories that are told the time."""
