"""What is read from a configuration file, and what is told of applications that run."""
