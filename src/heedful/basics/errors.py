"""The error for mistakes that the user can correct."""


class UserError(Exception):
    """An input of the user is invalid.

    The message is one line: what is wrong, where (file, line, key), and what to do. The command
    line prints it to standard error and exits with code 2; a library caller catches it.
    """
