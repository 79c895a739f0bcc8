"""What the subcommands of ``axlm`` raise."""


class UsageError(Exception):
    """The command line asks for something that cannot be; the exit code is 2."""
