"""Run time: what compiles and executes a Program on a device."""
