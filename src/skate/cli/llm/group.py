"""The group `skate llm`."""

from __future__ import annotations

import click

from skate.cli.llm import finetune, models


@click.group()
def llm() -> None:
    """Train and use language models."""


for _command in (finetune.finetune, finetune.check, models.serve, models.chat, models.bench):
    llm.add_command(_command)
