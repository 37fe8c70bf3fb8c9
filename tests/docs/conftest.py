"""The labs that the documents' commands and programs run on: unless a test names another, the reference fabric."""

from netns.pytest import lab, pytest_configure  # noqa: F401 - pytest looks for them here
