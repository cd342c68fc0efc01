"""Code that the trainers of several frameworks share: addresses, threads, boosting, and checkpoints of one model."""
