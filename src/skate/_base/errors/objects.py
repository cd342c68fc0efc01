"""Errors of objects: late, lost, freed, or too large for the store."""

from __future__ import annotations

from typing import Any, ClassVar

from skate._base.errors.root import RayError


class GetTimeoutError(RayError, TimeoutError):
    """Report that ``get`` did not have its result in time."""


class PlasmaObjectNotAvailable(RayError):
    """Report that an object is not in the store within the requested time."""


class ObjectLostError(RayError):
    """Report that the value of a reference is gone.

    Args:
        object_ref_hex: Id of the object in hexadecimal.
        owner_address: Where the process that made the reference listened, if known.
        call_site: Where the reference was made, if known.
    """

    _WHY: ClassVar[str] = "All copies of it are lost."

    def __init__(self, object_ref_hex: str, owner_address: Any = None, call_site: str = "") -> None:
        super().__init__(object_ref_hex, owner_address, call_site)
        self.object_ref_hex = object_ref_hex
        self.owner_address = owner_address
        self.call_site = call_site.replace("|", "\n  ") if call_site else ""

    def __str__(self) -> str:
        made = f" The reference was made at:\n  {self.call_site}\n" if self.call_site else " "
        return f"Failed to retrieve object {self.object_ref_hex}.{made}{self._why()}"

    def _why(self) -> str:
        return self._WHY


class ObjectFetchTimedOutError(ObjectLostError):
    """Report that no copy of the object was found in time."""

    _WHY = "No copy of it was found in time."


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """Report that a referenced object was freed, which is a bug in Skate."""

    _WHY = "It was freed while references to it existed. This is a fault in Skate: please report it."


class ObjectFreedError(ObjectLostError):
    """Report that an object was freed by hand."""

    _WHY = "It was freed by an explicit call to free(). Free objects only when they are no longer needed."


class OwnerDiedError(ObjectLostError):
    """Report that the owner of the object died before its value was stored."""

    _WHY = "The process that made it, by calling .remote() or put(), has exited."


class ObjectReconstructionFailedError(ObjectLostError):
    """Report that a lost object could not be computed again.

    Args:
        object_ref_hex: Id of the object in hexadecimal.
        reason: A short code for the reason.
        reason_message: The reason in words.
        owner_address: Where the process that made the reference listened, if known.
        call_site: Where the reference was made, if known.
    """

    def __init__(
        self,
        object_ref_hex: str,
        reason: Any = None,
        reason_message: str | None = None,
        owner_address: Any = None,
        call_site: str = "",
    ) -> None:
        super().__init__(object_ref_hex, owner_address, call_site)
        self.reason = reason
        self.reason_message = reason_message or "It is lost and could not be computed again."

    def _why(self) -> str:
        return f"[{self.reason}] {self.reason_message}" if self.reason is not None else self.reason_message


class ObjectStoreFullError(RayError):
    """Report that shared memory for an object could not be allocated."""

    def __str__(self) -> str:
        return super().__str__() or (
            "The object store is full, and all its objects are in use. Drop references that are no longer "
            "needed, or give it more with skate.init(object_store_memory=...)."
        )


class OutOfDiskError(RayError):
    """Report that an object could be kept neither in memory nor on disk."""

    def __str__(self) -> str:
        return super().__str__() or (
            "The object store is full and so is the disk that objects spill to. Free some disk space, or "
            "drop references that are no longer needed."
        )


class ObjectRefStreamEndOfStreamError(RayError):
    """Mark the end of a stream of results."""


class OufOfBandObjectRefSerializationException(RayError):  # (sic) the public name has this spelling
    """Report that a reference was pickled outside of Skate, where it cannot be kept alive."""
