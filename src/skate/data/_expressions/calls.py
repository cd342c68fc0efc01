"""Nodes that call a function of the user or of pyarrow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from skate.data._expressions.expr import UNKNOWN, Expr
from skate.data._expressions.fingerprints import ByIdentity, freeze
from skate.data._expressions.nodes import as_expr, node
from skate.data.datatype import DataType

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence


@dataclass(frozen=True)
class CallableClassSpec:
    """A callable class and its constructor arguments; workers create the instance."""

    cls: type
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def key(self) -> Hashable:
        """Return a key that identifies the class and its arguments."""
        return (self.cls, freeze(self.args), freeze(dict(self.kwargs)))

    def make(self) -> Any:
        """Create the instance."""
        return self.cls(*self.args, **self.kwargs)


@node
class UDFExpr(Expr):
    """Call a function on whole columns.

    Args:
        fn: The function; it takes Arrow arrays, and Python values for literal arguments.
        args: Positional arguments.
        kwargs: Keyword arguments.
        data_type: Type of the result.
        callable_class_spec: The class to instantiate and call, if the function is a callable class.
    """

    fn: Callable[..., Any]
    args: Sequence[Expr] = ()
    kwargs: Mapping[str, Expr] = field(default_factory=dict)
    data_type: DataType = UNKNOWN
    callable_class_spec: CallableClassSpec | None = None

    @property
    def label(self) -> str:
        """The name of the function."""
        if self.callable_class_spec is not None:
            return self.callable_class_spec.cls.__name__
        return getattr(self.fn, "__name__", type(self.fn).__name__)

    def children(self) -> tuple[Expr, ...]:
        """Return the arguments, positional ones first."""
        return (*self.args, *self.kwargs.values())

    def split(self, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """Split the values of the children into positional and keyword arguments."""
        positional = len(self.args)
        return list(values[:positional]), dict(zip(self.kwargs, values[positional:], strict=True))

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the call with other arguments."""
        args, kwargs = self.split(children)
        return UDFExpr(self.fn, args, kwargs, self.data_type, self.callable_class_spec)

    def own_key(self) -> Hashable:
        """Return the function or class, and the names of keyword arguments."""
        function = ByIdentity(self.fn) if self.callable_class_spec is None else self.callable_class_spec.key()
        return (function, len(self.args), tuple(self.kwargs))

    def needs_actor(self) -> bool:
        """Return whether the call or an argument uses a callable class."""
        return self.callable_class_spec is not None or super().needs_actor()


@node
class PyArrowComputeUDFExpr(UDFExpr):
    """Call a function of `pyarrow.compute`, which readers can also evaluate.

    Args:
        pc_func: The function.
        pc_positional: Further positional arguments.
        pc_kwargs: Options of the function.
        method: Name of the method that creates this node, for messages.
    """

    pc_func: Callable[..., Any] | None = None
    pc_positional: tuple[Any, ...] = ()
    pc_kwargs: Mapping[str, Any] = field(default_factory=dict)
    method: str = ""

    @property
    def label(self) -> str:
        """The name of the method."""
        return self.method

    def apply(self, values: Sequence[Any]) -> Any:
        """Call the function with arrays or with pyarrow expressions."""
        return self.fn(*values, *self.pc_positional, **self.pc_kwargs)

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the call with other arguments."""
        return PyArrowComputeUDFExpr(
            self.fn,
            tuple(children),
            {},
            self.data_type,
            None,
            self.pc_func,
            self.pc_positional,
            self.pc_kwargs,
            self.method,
        )

    def own_key(self) -> Hashable:
        """Return the method and its options."""
        return (self.method, freeze(self.pc_positional), freeze(dict(self.pc_kwargs)))


def compute(
    method: str,
    function: Callable[..., Any],
    *args: Any,
    positional: tuple[Any, ...] = (),
    returns: DataType = UNKNOWN,
    **options: Any,
) -> PyArrowComputeUDFExpr:
    """Create a node that calls a function of `pyarrow.compute`.

    Args:
        method: Name of the method that creates the node.
        function: The function.
        args: Operands: expressions, or constants for all rows.
        positional: Further positional arguments.
        returns: Type of the result, if it does not depend on the operands.
        options: Options of the function.
    """
    return PyArrowComputeUDFExpr(
        fn=function,
        args=tuple(as_expr(arg) for arg in args),
        data_type=returns,
        pc_func=function,
        pc_positional=positional,
        pc_kwargs=options,
        method=method,
    )


@node
class KernelExpr(UDFExpr):
    """Call a function of Skate on Arrow arrays, for operations without a function in `pyarrow.compute`."""

    method: str = ""
    options: tuple[Any, ...] = ()

    @property
    def label(self) -> str:
        """The name of the method."""
        return self.method

    def with_children(self, children: Sequence[Expr]) -> Expr:
        """Return the call with other arguments."""
        return KernelExpr(self.fn, tuple(children), method=self.method, options=self.options)

    def own_key(self) -> Hashable:
        """Return the method and its options."""
        return (self.method, freeze(self.options))


def cast(value: Any, target_type: Any, safe: bool) -> Any:
    """Cast an array, a scalar or a pyarrow expression; `pyarrow.compute.cast` does not accept expressions."""
    return value.cast(target_type, safe=safe)
