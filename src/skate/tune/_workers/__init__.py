"""The processes that run trials."""
