"""``pnpcm priors``: list, inspect, sample, evaluate, convert and export priors."""

import typer

from pnpcm.cli.priors.convert import convert, export
from pnpcm.cli.priors.judge import evaluate, sample
from pnpcm.cli.priors.look import info, list_priors

priors = typer.Typer(
    name="priors",
    help="List, inspect, sample, evaluate, convert and export priors.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
priors.command("list")(list_priors)
priors.command()(info)
priors.command()(sample)
priors.command()(evaluate)
priors.command()(convert)
priors.command()(export)
