"""Run the same programs on Skate, Ray and others, and compare what they report."""
