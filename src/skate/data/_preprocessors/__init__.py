"""Implementation of `skate.data.preprocessors`: options, statistics and column conversions."""
