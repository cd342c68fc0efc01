"""Dynamic batching: calls, the batches they form, and the queues that run them."""
