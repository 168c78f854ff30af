"""Foreign code as a subject: its call signatures, its random numbers, and its answers."""
