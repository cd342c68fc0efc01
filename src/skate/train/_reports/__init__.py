"""The messages of workers, and decisions about their reports, without I/O."""
