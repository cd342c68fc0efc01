"""Classes that derive from both ``RayTaskError`` and the class of a remote exception.

The dual of ``ValueError`` derives from ``RayTaskError`` and from ``ValueError``; an instance has the ``args``, fields
and methods of the cause. The constructor of the user's class never runs, because its arguments and effects are
unknown.
"""

from __future__ import annotations

from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from skate._base.errors.task import RayTaskError, root_cause

if TYPE_CHECKING:
    from collections.abc import Callable

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set on classes made by a class statement

_ARGS = vars(BaseException)["args"]

# Weak on the dual, so that classes made inside functions can be collected with their last error.
_duals: WeakValueDictionary[type[BaseException], type[DualTaskError]] = WeakValueDictionary()


class DualTaskError(RayTaskError):
    """The base of every dual class: a plain task error inside, and the fields of the cause."""

    # Class-level types only: the values live in `_task_error`.
    _task_error: RayTaskError
    _cause_class: type[BaseException]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # `raise type(error)("text")` is a common way to re-raise, which means the user's class.
        return cls._cause_class(*args, **kwargs)

    # Properties on the most derived class, so that no attribute of the user's class can hide them.
    @property
    def cause(self) -> BaseException | None:
        """The exception that the remote code raised."""
        return root_cause(self.__dict__["_task_error"])

    @cause.setter
    def cause(self, value: BaseException | None) -> None:
        raise AttributeError("the cause of a task error cannot be replaced")

    def as_instanceof_cause(self) -> RayTaskError:
        return self

    def make_dual_exception_instance(self) -> RayTaskError:
        return self

    def __getattr__(self, name: str) -> Any:
        if _is_dunder(name):
            raise AttributeError(name)
        task_error = self.__dict__["_task_error"]
        cause = root_cause(task_error)
        try:
            return getattr(cause, name)
        except AttributeError:
            # The user's own fields come first: an exception keeps its type, whatever the names of its fields.
            if name in task_error.__dict__:
                return task_error.__dict__[name]
            raise

    def __str__(self) -> str:
        return str(self.__dict__["_task_error"])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.cause!r})"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return restore_dual, (self.__dict__["_task_error"],)

    def __reduce_ex__(self, protocol: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Overridden too, because the user's class may override it.
        return self.__reduce__()


class CauseField:
    """Reads and writes a field of the cause that the interpreter stores outside ``__dict__``.

    Examples are ``OSError.errno``, ``StopIteration.value`` and ``__slots__``: a descriptor in the class finds the
    dual's own, empty storage before ``__getattr__`` is called.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: DualTaskError | None, owner: type | None = None) -> Any:
        return self if instance is None else getattr(instance.cause, self.name)

    def __set__(self, instance: DualTaskError, value: Any) -> None:
        setattr(instance.cause, self.name, value)


def restore_dual(task_error: RayTaskError) -> RayTaskError:
    """Rebuild a dual error from the plain one inside it."""
    return task_error.as_instanceof_cause()


def make_dual(task_error: RayTaskError) -> RayTaskError:
    """Return the dual of a task error.

    Raises:
        TypeError: There is no cause, or its class cannot be subclassed.
    """
    cause = root_cause(task_error)
    if cause is None:
        raise TypeError("the task error has no cause to stand for")
    cls = _dual_class(type(cause))
    error = _allocate(cls, cause)
    # Fields are copied, not only looked up: a default in the class would hide them from `__getattr__`.
    error.__dict__.update((name, value) for name, value in vars(cause).items() if not _is_dunder(name))
    error.__dict__["_task_error"] = task_error
    _set_args(error, cause)
    return error


def _dual_class(cause_class: type[BaseException]) -> type[DualTaskError]:
    cls = _duals.get(cause_class)
    if cls is None:
        namespace: dict[str, Any] = {
            "__module__": RayTaskError.__module__,
            "__qualname__": f"RayTaskError({cause_class.__name__})",
            "__doc__": f"A task error whose cause is a {cause_class.__qualname__}.",
            "_cause_class": cause_class,
        }
        for base in cause_class.__mro__:
            if base is BaseException:
                break
            for name, value in vars(base).items():
                if isinstance(value, (MemberDescriptorType, GetSetDescriptorType)) and not _is_dunder(name):
                    namespace[name] = CauseField(name)
        if _find(cause_class, "args") is not _ARGS:
            # A property would compute them from fields; `_set_args` puts the cause there instead.
            namespace["args"] = _ARGS
        name = f"RayTaskError({cause_class.__name__})"
        cls = type(name, (DualTaskError, cause_class), namespace)
        _duals[cause_class] = cls
    return cls


def _is_dunder(name: str) -> bool:
    # Such names are protocols of the interpreter; with `__notes__`, the notes would be printed twice.
    return name.startswith("__") and name.endswith("__")


def _find(cls: type, name: str) -> Any:
    return next(vars(base)[name] for base in cls.__mro__ if name in vars(base))


def _allocate(cls: type[DualTaskError], cause: BaseException) -> DualTaskError:
    """Create an instance through the interpreter's own base class, without a ``__new__`` in Python."""
    base: Any = cls
    while base.__flags__ & _HEAP_TYPE:
        base = base.__base__
    if isinstance(cause, BaseExceptionGroup):
        group: DualTaskError = base.__new__(cls, cause.message, cause.exceptions)
        return group
    error: DualTaskError = base.__new__(cls)
    for args in (cause.args, ()):
        try:
            base.__init__(error, *args)
        except TypeError:
            # A subclass may keep other args than its built-in base takes (UnicodeDecodeError wants five).
            continue
        break
    return error


def _set_args(error: DualTaskError, cause: BaseException) -> None:
    computed = _find(type(cause), "args") is not _ARGS
    _ARGS.__set__(error, (cause,) if computed else cause.args)
