"""Who has this already, and who is busy? Producers with memory."""
