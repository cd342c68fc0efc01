"""What workers tell of their training, and what follows from it: words and decisions, without I/O."""
