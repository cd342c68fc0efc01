"""The implementation of `skate.data.aggregate`: the base classes and the built-in aggregations."""
