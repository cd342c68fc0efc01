"""OpenTelemetry spans of this process, which are off until a startup hook has run.

Until then, OpenTelemetry is not imported. The trace context of a call travels inside its pickled keyword
arguments, so messages are the same with and without tracing, and a process without tracing drops the context as it
unpickles them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Mapping
from typing import Any, Final, ParamSpec, TypeVar

__all__ = [
    "CONTEXT_KEYWORD",
    "HOOK",
    "SDK",
    "Span",
    "Tracer",
    "carry",
    "check_hook",
    "disable",
    "enable",
    "span",
    "start_span",
    "tracer",
]

P = ParamSpec("P")
R = TypeVar("R")

SDK: Final = "opentelemetry.sdk.trace"
HOOK: Final = "tracing_startup_hook"
"""The key of the hook in the metadata of a job and in the configuration of a node."""
CONTEXT_KEYWORD: Final = "_ray_trace_ctx"
"""The keyword argument with the trace context of a call, in W3C format."""
_END: Final = object()

_tracer: Tracer | None = None
_hooks_run: set[str] = set()


def tracer() -> Tracer | None:
    """Return the tracer of this process; None while tracing is off."""
    return _tracer


def check_hook(path: object) -> str:
    """Return a valid path of a startup hook.

    Raises:
        TypeError: It is not a string.
        ValueError: It does not have the form `module:function`.
        ImportError: OpenTelemetry's SDK is not installed.
    """
    if not isinstance(path, str):
        raise TypeError(f"The tracing startup hook must be a string 'module:function', not {path!r}.")
    module, _, name = path.partition(":")
    if not module or not name:
        raise ValueError(f"The tracing startup hook must have the form 'module:function', not {path!r}.")
    try:
        importlib.import_module(SDK)
    except ImportError as error:
        raise ImportError(
            f"The tracing startup hook {path!r} needs OpenTelemetry's SDK: pip install 'skate[otel]'"
        ) from error
    return path


def enable(hook: str) -> None:
    """Run a startup hook, unless it has already run in this process, and start creating spans.

    Raises:
        TypeError: The path of the hook is not a string, or names an object that cannot be called.
        ValueError: The path does not have the form `module:function`.
        ImportError: OpenTelemetry's SDK or the module of the hook cannot be imported.
        AttributeError: The module has no such function.
    """
    global _tracer
    check_hook(hook)
    if hook not in _hooks_run:
        _load(hook)()
        _hooks_run.add(hook)  # a second call would export each span twice
    _tracer = Tracer()


def disable() -> None:
    """Stop creating spans."""
    global _tracer
    _tracer = None


def _load(hook: str) -> Callable[[], object]:
    module, _, name = hook.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"The module of the tracing startup hook {hook!r} cannot be imported in process {os.getpid()}: {error}. "
            "The driver and every worker import it: install it, or put it in a folder of PYTHONPATH."
        ) from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise AttributeError(
                f"The tracing startup hook {hook!r} does not exist: {found!r} has no {part!r}."
            )
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"The tracing startup hook {hook!r} must name a function, not {found!r}.")
    return found  # type: ignore[no-any-return]


@contextlib.contextmanager
def span(name: str, attributes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Create a span around the body of the `with` statement, if tracing is on."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name, attributes=attributes):
        yield


def start_span(name: str, attributes: Mapping[str, Any] | None = None) -> Span | None:
    """Start a span that is not current and has to be ended; return None while tracing is off."""
    return None if _tracer is None else _tracer.start_span(name, attributes)


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that runs in the current trace context, in whichever thread it is called."""
    return function if _tracer is None else _tracer.carry(function)


class Tracer:
    """Creates spans with the provider that the startup hook has set."""

    def __init__(self) -> None:
        from opentelemetry import context, propagate, trace

        self._context = context
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer("skate")
        self.start_as_current_span = self._tracer.start_as_current_span

    @contextlib.contextmanager
    def submission(
        self, name: str, attributes: Mapping[str, str], kwargs: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """Create the span of a call's submission; yield the keyword arguments with the trace context."""
        kind = self._trace.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"{name} ray.remote", kind=kind, attributes=attributes):
            context: dict[str, str] = {}
            self._propagate.inject(context)
            yield _TracedKeywords(kwargs, context)

    def start_execution(
        self, name: str, attributes: Mapping[str, str], context: Mapping[str, str] | None
    ) -> Span:
        """Start the span of a call's execution, under the span of its submission."""
        started = self._tracer.start_span(
            f"{name} ray.remote_worker",
            context=self._propagate.extract(context or {}),
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
        )
        return Span(started, self._trace, self._context)

    def start_span(self, name: str, attributes: Mapping[str, Any] | None = None) -> Span:
        """Start a span that is not current and has to be ended."""
        return Span(self._tracer.start_span(name, attributes=attributes), self._trace, self._context)

    def carry(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function that runs in the current trace context."""
        here = self._context.get_current()
        attach, detach = self._context.attach, self._context.detach

        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            token = attach(here)
            try:
                return function(*args, **kwargs)
            finally:
                detach(token)

        return run


class Span:
    """A span that is current only while code runs in it, for instance not between the items of a generator."""

    def __init__(self, span: Any, trace: Any, context: Any) -> None:
        self._span = span
        self._trace = trace
        self._attach, self._detach = context.attach, context.detach
        self._context = trace.set_span_in_context(span)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function; the span ends if it raises."""
        token = self._attach(self._context)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._detach(token)

    def generate(self, generator: Generator[Any, Any, Any]) -> Generator[Any, None, None]:
        """Yield the items of a generator; the span ends with it."""
        try:
            while (item := self.run(next, generator, _END)) is not _END:
                yield item
        finally:
            self.run(generator.close)
            self.end()

    async def wait(self, awaitable: Awaitable[Any]) -> Any:
        """Await a coroutine; the span ends with it."""
        try:
            return await self._step(awaitable)
        finally:
            self.end()

    async def generate_async(self, generator: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, None]:
        """Yield the items of an asynchronous generator; the span ends with it."""
        try:
            while (item := await self._step(anext(generator, _END))) is not _END:
                yield item
        finally:
            await self._step(generator.aclose())
            self.end()

    async def _step(self, awaitable: Awaitable[Any]) -> Any:
        token = self._attach(self._context)
        try:
            return await awaitable
        except BaseException as error:
            self.fail(error)
            raise
        finally:
            self._detach(token)

    def end(self, end_time_ns: int | None = None, attributes: Mapping[str, Any] | None = None) -> None:
        """End the span, unless an exception has ended it; now, or at an earlier time in nanoseconds since the epoch."""
        if self._span.is_recording():
            self._span.set_attributes(attributes or {})
            self._span.end(end_time_ns)

    def fail(self, error: BaseException) -> None:
        """End the span with an exception."""
        if self._span.is_recording():
            self._span.record_exception(error)
            self._span.set_status(self._trace.StatusCode.ERROR, f"{type(error).__name__}: {error}")
            self._span.end()


class _TracedKeywords(dict[str, Any]):
    """Keyword arguments that are pickled together with a trace context."""

    def __init__(self, kwargs: Mapping[str, Any], context: dict[str, str]) -> None:
        super().__init__(kwargs)
        self._context = context

    def __bool__(self) -> bool:
        return True  # they must be pickled even if the call has no keyword argument

    def copy(self) -> _TracedKeywords:
        """Return a copy with the same trace context."""
        return _TracedKeywords(self, self._context)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (dict(self), self._context)


def _restore(kwargs: dict[str, Any], context: dict[str, str]) -> dict[str, Any]:
    """Unpickle keyword arguments. They include `CONTEXT_KEYWORD` only if tracing is on."""
    if _tracer is not None:
        kwargs[CONTEXT_KEYWORD] = context
    return kwargs
