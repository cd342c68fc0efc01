"""Writes that go on where a killed program stopped: what they are cut into, and how they remember it."""
