"""Program -> StableHLO text."""
