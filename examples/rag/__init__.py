"""Ask questions about a folder of documents: ingest, search, answer with citations. See `__main__.py`."""
