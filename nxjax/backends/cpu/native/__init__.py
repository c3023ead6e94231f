"""The run time of compiled programs, as machine code: memory, threads, and the machine that runs tapes."""
