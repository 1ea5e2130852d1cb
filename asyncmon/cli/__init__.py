"""The command line, ``asyncmon`` or ``python -m asyncmon``: one module a command.

A command's module has ``DESCRIPTION``, ``add_options(parser)`` and ``run(options)``, which returns the
exit status; it may have an ``EPILOG``. Only the module of the command that is run is imported.
"""

from asyncmon.cli.main import main as main
