"""The shutdown of sessions and of the process, from a stop or a signal to the exit status."""
