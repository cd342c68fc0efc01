"""What the trainers of several frameworks share: addresses, threads, boosters, checkpoints of one model."""
