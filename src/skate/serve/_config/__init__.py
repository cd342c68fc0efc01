"""How a deployment and the edge of Serve are configured: defaults, rules, and the values that hold them."""
