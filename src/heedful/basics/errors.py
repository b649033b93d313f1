"""The one error that is the user's to mend."""


class UserError(Exception):
    """Something the user gave cannot be used.

    The message is one line: what is wrong, where (file, line, key), and what to do. The command
    line prints it to standard error and exits with code 2; a library caller catches it.
    """
