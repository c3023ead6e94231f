"""How each op becomes vertices and copies: one file per family of ops."""
