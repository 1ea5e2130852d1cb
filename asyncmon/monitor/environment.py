"""The environment of a monitor, and of the commands that act on one."""

TOKEN_VARIABLE = "ASYNCMON_TOKEN"
"""The environment variable with the token."""
