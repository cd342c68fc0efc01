"""Usage of NVIDIA GPUs, read with NVML: the library of the driver, which needs no package."""

from __future__ import annotations

import ctypes
import logging
from typing import Any

__all__ = ["Gpus"]

logger = logging.getLogger(__name__)


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Gpus:
    """The GPUs of this machine; none without a driver.

    Attributes:
        names: The name of each GPU.
        limits: The bytes of memory of each GPU.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.limits: list[int] = []
        self._handles: list[ctypes.c_void_p] = []
        self._library: Any = None
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return  # no driver
        if library.nvmlInit_v2() != 0:
            return
        self._library = library
        count = ctypes.c_uint()
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        for index in range(count.value):
            self._add(index)

    def _add(self, index: int) -> None:
        handle, name = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if self._library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
            logger.warning("GPU %d cannot be read", index)
            return
        self._library.nvmlDeviceGetName(handle, name, len(name))
        self._handles.append(handle)
        self.names.append(name.value.decode("utf-8", "replace"))
        self.limits.append(self._memory(handle).total)

    def _memory(self, handle: ctypes.c_void_p) -> _Memory:
        found = _Memory()
        self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(found))
        return found

    def read(self) -> list[tuple[float, float]]:
        """Return the utilization in percent and the used bytes of each GPU."""
        found = []
        for handle in self._handles:
            utilization = _Utilization()
            self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(utilization))
            found.append((float(utilization.gpu), float(self._memory(handle).used)))
        return found

    def close(self) -> None:
        """Release the library."""
        if self._library is not None:
            self._library.nvmlShutdown()
            self._library = None
