"""XLA's CPU client through jaxlib. Everything that touches jaxlib is in this folder."""
