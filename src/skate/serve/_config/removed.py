"""Names of options that do not exist: what to say to who writes them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from skate.serve._config.wording import closest

_REMOVED = {
    "host": "Use `serve.start(http_options={'host': ...})`.",
    "init_args": "Give arguments with `.bind(...)`.",
    "init_kwargs": "Give arguments with `.bind(...)`.",
    "is_driver_deployment": "There is one proxy for all applications: use `serve.run(..., route_prefix=...)`.",
    "max_concurrent_queries": "Use `max_ongoing_requests`.",
    "max_queued_queries": "Use `max_queued_requests`.",
    "port": "Use `serve.start(http_options={'port': ...})`.",
    "prev_version": "Serve manages versions itself.",
    "ray_actor_option": "Use `ray_actor_options`.",
    "route_prefix": "A route belongs to an application: use `serve.run(..., route_prefix=...)`, or `route_prefix` of "
    "the application in a configuration file.",
    "runtime_env": "Use `ray_actor_options={'runtime_env': ...}`.",
    **{
        option: f"Use `ray_actor_options={{'{option}': ...}}`."
        for option in ("accelerator_type", "memory", "num_cpus", "num_gpus", "resources")
    },
}


def refuse_version(where: str) -> None:
    """Raise for `version`, which a user could give once."""
    raise ValueError(
        f"`version` in `{where}` has been removed. Serve manages the versions of deployments itself."
    )


def refuse_unknown(given: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise TypeError for a name that is no option.

    Args:
        given: The names that were written.
        known: Those that exist.
        where: Where they were written, as the user knows it: `@serve.deployment`.
    """
    for name in given:
        if name not in known:
            hint = _REMOVED.get(name) or closest(name, known)
            raise TypeError(f"{where} got an unexpected keyword argument {name!r}. {hint}")
