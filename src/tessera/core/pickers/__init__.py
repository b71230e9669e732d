"""Which of the rated endpoints wins?"""
