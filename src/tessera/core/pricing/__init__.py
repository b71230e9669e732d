"""What does a request weigh in tokens? One model family a file."""
