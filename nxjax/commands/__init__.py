"""The command line: what all commands have in common (`command`), and the text of ``nxjax info``. See `__main__`."""
