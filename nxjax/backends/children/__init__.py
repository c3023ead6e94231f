"""Processes that hold what may crash or hang: vendors' libraries, behind a socket and shared memory."""
