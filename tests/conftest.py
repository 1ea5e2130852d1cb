"""The plugin that users of the test bench switch on the same way."""

pytest_plugins = ["asyncmon.testing.pytest_plugin"]
