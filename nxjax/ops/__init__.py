"""The vocabulary: one final class per op. Names no transform, target or backend."""
