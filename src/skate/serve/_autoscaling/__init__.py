"""How many replicas a deployment should have: decided from measurements, without I/O and without a clock."""
