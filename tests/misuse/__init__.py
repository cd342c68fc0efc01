"""Wrong calls of the public functions, made from their signatures, and tables of the errors that they give."""
