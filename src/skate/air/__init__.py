"""What the libraries above the core share: filesystems, and packages that only some need."""

__all__: list[str] = []
