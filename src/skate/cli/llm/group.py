"""The group `skate llm`."""

from __future__ import annotations

import click

from skate.cli.llm import finetune


@click.group()
def llm() -> None:
    """Train and use language models."""


for _command in (finetune.finetune, finetune.check):
    llm.add_command(_command)
