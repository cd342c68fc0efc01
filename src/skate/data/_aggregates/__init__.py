"""What is behind `skate.data.aggregate`: how an aggregation is defined, and the ones that come with it."""
