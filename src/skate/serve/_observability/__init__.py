"""What Serve tells of itself: metrics, logs and traces, of each kind of process."""
