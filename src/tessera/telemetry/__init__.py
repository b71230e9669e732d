"""What an operator sees: metrics, logs and records, read from Decisions and Outcomes."""
