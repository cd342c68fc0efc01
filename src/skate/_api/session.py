"""Starting and ending a session: `init`, `shutdown`, and the context that `init` returns."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import skate._engine as engines
from skate._api import init_arguments, starting
from skate._base import tracing, variables
from skate._base.suggestions import did_you_mean
from skate._version import __version__, ray_version

if TYPE_CHECKING:
    from skate._base.object_ref import ObjectRef
    from skate._engine.abc import Engine

# Private keywords of Ray's `init` that have no meaning on one machine. `init` accepts and ignores them.
_IGNORED = frozenset(
    (
        "_system_config", "_node_ip_address",
        "_node_name", "_redis_max_memory", "_plasma_directory", "_object_store_memory", "_driver_object_store_memory",
        "_redis_username", "_redis_password", "_skip_env_hook", "_lru_evict", "_redis_db", "_internal_config",
        "_enable_object_reconstruction",
    )
)  # fmt: skip

_DASHBOARD_HOST = "127.0.0.1"


class BaseContext(Mapping[str, Any]):
    """The result of `init`: properties of the session, and a context manager that ends it."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.address_info = facts
        self.dashboard_url: str = facts.get("webui_url") or ""
        self.python_version = ".".join(map(str, sys.version_info[:3]))
        self.ray_version = ray_version
        self.skate_version = __version__
        self.ray_commit = "skate"

    def __getitem__(self, key: str) -> Any:
        return self.address_info[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.address_info)

    def __len__(self) -> int:
        return len(self.address_info)

    def __enter__(self) -> BaseContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """End the session."""
        shutdown()

    def __repr__(self) -> str:
        return f"SkateContext(engine={self['engine']!r}, session={self['session_dir']!r})"

    def _repr_html_(self) -> str:
        from skate._base.html_tables import facts_html  # only notebooks need it

        facts = {
            "engine": self["engine"],
            "session": self["session_dir"],
            "dashboard": self.dashboard_url or None,
        }
        return facts_html("Skate", facts)


def init(
    address: str | None = None,
    *,
    engine: str | None = None,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: dict[str, float] | None = None,
    labels: dict[str, str] | None = None,
    object_store_memory: int | None = None,
    local_mode: bool = False,
    ignore_reinit_error: bool = False,
    include_dashboard: bool | None = None,
    dashboard_host: str = _DASHBOARD_HOST,
    dashboard_port: int | None = None,
    job_config: Any = None,
    configure_logging: bool = True,
    logging_level: int | str = "info",
    logging_format: str | None = None,
    logging_config: Any = None,
    log_to_driver: bool | None = None,
    namespace: str | None = None,
    runtime_env: dict[str, Any] | None = None,
    enable_resource_isolation: bool = False,
    cgroup_path: str | None = None,
    system_reserved_cpu: float | None = None,
    system_reserved_memory: int | None = None,
    proxy_server_url: str | None = None,
    preload: list[str] | None = None,
    preflight: str = "raise",
    **kwargs: Any,
) -> BaseContext:
    """Start a session: start a private node on this machine, or attach to a running node.

    Args:
        address: None starts a private node; "auto" attaches to the node of `skate start`, or of the program
            that started this one; a folder attaches to the node there; "ray://host:port" uses a Ray cluster.
        engine: "inline", "local" or "ray"; the default is SKATE_ENGINE, or "local".
        num_cpus: CPUs to schedule; by default those that this process may use.
        num_gpus: GPUs to schedule; by default those detected.
        resources: Custom resources by name.
        labels: Labels of the node.
        object_store_memory: The most bytes of shared memory that large objects may use.
        local_mode: Ray's old name for the inline engine.
        ignore_reinit_error: Return the running session instead of raising.
        include_dashboard: Whether to start a dashboard, which ends with the session; `dashboard_url` of the result
            has its URL with the token.
        dashboard_host: The address that the dashboard listens on.
        dashboard_port: The port of the dashboard, 8265 by default; if it is taken, the next free one.
        log_to_driver: Whether this process prints the output of workers; the default is SKATE_LOG_TO_DRIVER.
        namespace: The namespace of named actors; by default a namespace of the session's own.
        runtime_env: Runtime environment of all workers of this job.
        preload: Modules to import once, before workers are forked.
        preflight: How the ray engine reports problems that would make the program fail on the cluster:
            "raise", "warn" or "off".

    Returns:
        The session's context, which can be used in a `with` statement.

    >>> import skate
    >>> with skate.init(num_cpus=1):
    ...     skate.get(skate.put(42))
    42
    """
    init_arguments.check(locals())
    unknown = (
        set(kwargs) - _IGNORED - {"_memory", "_metrics_export_port", "_temp_dir", "_tracing_startup_hook"}
    )
    if unknown:
        raise _unknown_keyword(min(unknown))
    earlier = engines.running()
    if earlier is not None and earlier.is_forked:
        engines.leave()  # the session belongs to the parent process
        earlier = None
    if earlier is not None:
        if ignore_reinit_error:
            return _context(earlier)
        raise RuntimeError(
            "Maybe you called ray.init twice by accident? Skate is running already: call shutdown() first, or pass "
            "ignore_reinit_error=True to keep the running session."
        )
    if job_config is not None:
        runtime_env = runtime_env or dict(job_config.runtime_env or {})
        namespace = namespace or job_config.ray_namespace
    from skate._engine.registry import choose

    name, found = choose("inline" if local_mode else engine, address)
    metadata = dict(getattr(job_config, "metadata", None) or {})
    lifetime = getattr(job_config, "default_actor_lifetime", None)
    if lifetime:
        metadata["default_actor_lifetime"] = str(lifetime)
    logging_config = _logging_config(logging_config, job_config)
    if logging_config is not None:
        metadata["logging_config"] = logging_config.to_dict()
    if _ray_is_skate():
        metadata["as_ray"] = True  # workers install the alias, too
    hook = kwargs.get("_tracing_startup_hook")
    if hook is not None and name != "ray":  # Ray itself runs the hook
        metadata[tracing.HOOK] = tracing.check_hook(hook)
    if name != "ray":  # Ray itself reads these variables
        from skate._api import submission

        changed, metadata = submission.add_job_config(runtime_env, metadata)
        if not kwargs.get("_skip_env_hook"):
            changed = submission.apply_hook(changed)
        runtime_env = changed  # type: ignore[assignment]  # a dict or a RuntimeEnv
    if configure_logging:
        from skate._api.logs import configure

        # Ray itself encodes the records of its drivers.
        configure(logging_level, logging_format, None if name == "ray" else logging_config)
    if log_to_driver is None:
        log_to_driver = variables.flag("LOG_TO_DRIVER", True)
    _send_main_along()
    store = None if object_store_memory is None else int(object_store_memory)
    machine = starting.Machine(num_cpus, num_gpus, resources, labels, store)
    job = starting.Job(namespace, runtime_env, metadata, log_to_driver)
    running: Engine
    if name == "ray":
        dashboard: dict[str, Any] = {"include_dashboard": include_dashboard, "dashboard_port": dashboard_port}
        if dashboard_host != _DASHBOARD_HOST:
            dashboard["dashboard_host"] = dashboard_host
        running = starting.ray(found, machine, job, preflight, **dashboard, **kwargs)
    elif name == "inline":
        running = starting.inline(machine, job)
    elif found:
        if kwargs.get("_system_config"):
            raise ValueError(
                "_system_config is for a node that init() starts; the node at this address has its settings already."
            )
        running = starting.attach(found, job)
    else:
        running = starting.local(
            machine,
            job,
            memory=kwargs.get("_memory"),
            preload=preload,
            system_config=kwargs.get("_system_config"),
            temp_dir=kwargs.get("_temp_dir"),
        )
    engines.adopt(running)
    running.watch_waits(_show_wait)
    if include_dashboard and name != "ray":  # Ray starts its own
        _start_dashboard(running, dashboard_host, dashboard_port)
    port = kwargs.get("_metrics_export_port")
    if port is not None and name != "ray":  # Ray itself listens on the port
        _export_metrics(running, port)
    return _context(running)


def _show_wait(references: Sequence[ObjectRef[Any]], needed: int, ready: int) -> Callable[[], None] | None:
    from skate._api.progress.waits import show_wait  # most programs do not wait long

    return show_wait(references, needed, ready)


def _start_dashboard(running: Engine, host: str, port: int | None) -> None:
    """Start a dashboard that ends with the session."""
    if running.name == "inline":
        import logging

        logging.getLogger("skate").warning(
            "The inline engine has no dashboard: it runs in this process, and no node can be asked. "
            "include_dashboard=True has no effect."
        )
        return
    from skate._api import dashboards

    try:
        dashboards.start(running, host, port)
    except BaseException:
        shutdown()
        raise


def _export_metrics(running: Engine, port: int) -> None:
    """Serve metrics with Ray's names on the port of Ray's keyword."""
    from skate.util.metrics import start_server

    try:
        server = start_server(port, prefix="ray_")
    except OSError:
        shutdown()
        raise
    running.on_shutdown(server.close)


def _send_main_along() -> None:
    """Pickle the program's definitions by value even in a child process of `multiprocessing`."""
    main = sys.modules.get("__mp_main__")
    if main is not None:
        import cloudpickle

        cloudpickle.register_pickle_by_value(main)


def _ray_is_skate() -> bool:
    """Return whether `import ray` imports Skate in this process; it does not if the alias is not loaded."""
    alias = sys.modules.get("skate._base.alias")
    return alias is not None and alias.installed()


def _logging_config(given: Any, job_config: Any) -> Any:
    """Return the logging config of `init`, the job config or the environment; None for Python's defaults."""
    found = given or getattr(job_config, "py_logging_config", None)
    if found is None and any(name.endswith("_LOGGING_CONFIG_ENCODING") for name in os.environ):
        from skate._base.logging_config import LoggingConfig

        found = LoggingConfig.from_environment()
    return found


def _unknown_keyword(keyword: str) -> Exception:
    import inspect

    if keyword == "allow_multiple":
        return RuntimeError(
            "init(allow_multiple=True) is for Ray Client, which Skate does not have: leave it out."
        )
    hint = did_you_mean(keyword, inspect.signature(init).parameters)
    return RuntimeError(
        f"init() got an unknown keyword: {keyword!r} is no option of Ray's init or Skate's.{hint}"
    )


def _context(engine: Engine) -> BaseContext:
    context = engine.context()
    session = context.session
    known = {
        "engine": engine.name,
        "node_id": context.node.hex(),
        "node_ip_address": "127.0.0.1",
        "address": session,
        "gcs_address": session,
        "session_dir": session,
        "temp_dir": os.path.dirname(session),
        "object_store_address": session,
        "raylet_socket_name": os.path.join(session, "node.sock"),
        "webui_url": _dashboard_url(engine),
        "metrics_export_port": 0,
    }
    return BaseContext({**known, **engine.address_info})


def _dashboard_url(engine: Engine) -> str:
    """Return the URL of a dashboard of the session, with its token; "" if there is none."""
    session = engine.context().session
    if engine.name != "local" or not os.path.isdir(os.path.join(session, "dashboards")):
        return ""  # most sessions have none, and need not import anything
    from skate._api import dashboards

    return dashboards.url_of(engine)


def is_initialized() -> bool:
    """Return whether a session is running in this process."""
    return engines.running() is not None


def shutdown(*, wait_for_processes: bool = False, _exiting_interpreter: bool = False) -> None:
    """End the session; return after its processes have ended and its sockets and files are removed."""
    engine = engines.running()
    if engine is None:
        return
    if engine.is_worker:
        return  # a worker does not end the session
    engines.leave()
    engine.shutdown()
