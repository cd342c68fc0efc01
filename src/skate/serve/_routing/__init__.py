"""What users build request routers of: the base class, requests and replicas as they see them."""
