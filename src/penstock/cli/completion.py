"""`penstock completion`: prints the script for shell completion of `penstock`.

The script is click's. It calls `penstock` again for every completion, which fetches the names of
topics and groups from the broker (`cli.completing`).
"""

import click
from click.shell_completion import get_completion_class

from penstock.cli.options import examples

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_PENSTOCK_COMPLETE"


@click.command(
    short_help="Print the completion script of a shell.",
    epilog=examples(
        "bash: echo 'eval \"$(penstock completion bash)\"' >> ~/.bashrc",
        "zsh:  echo 'eval \"$(penstock completion zsh)\"' >> ~/.zshrc",
        "fish: penstock completion fish > ~/.config/fish/completions/penstock.fish",
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL, for its start-up file.

    Commands, options and choices are completed, and so are the names of topics and groups if the
    broker answers within 0.3 seconds. bash must be 4.4 or newer.
    """
    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root().command
    # Print click's template directly, so that this machine does not need that shell.
    script = made(root, {}, "penstock", VARIABLE)
    click.echo(script.source_template % script.source_vars())
