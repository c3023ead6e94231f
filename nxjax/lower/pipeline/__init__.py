"""One program over several devices in stages: where it is cut, who works when, what each holds meanwhile."""
