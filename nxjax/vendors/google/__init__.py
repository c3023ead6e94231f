"""Google's Edge TPU."""
