"""Cloud TPUs without a TPU: Google's compiler, its answer about a program, and what that answer says."""
