"""What programs that extend `skate.data` may use besides its classes."""

from skate.data.util.data_batch_conversion import BatchFormat

__all__ = ["BatchFormat"]
