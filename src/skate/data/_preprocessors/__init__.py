"""What is behind `skate.data.preprocessors`: options, statistics, and columns on their way through."""
