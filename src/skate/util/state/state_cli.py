"""The commands of the state API under Ray's path: `ray list`, `ray get`, `ray summary` and `ray logs`."""

from __future__ import annotations

from skate.cli.listing import get, list_, summary
from skate.cli.logs import logs
from skate.cli.output import under_rays_name

__all__ = ["logs_state_cli_group", "ray_get", "ray_list", "summary_state_cli_group"]

ray_list = under_rays_name(list_)
ray_get = under_rays_name(get)
summary_state_cli_group = under_rays_name(summary)
logs_state_cli_group = under_rays_name(logs)
