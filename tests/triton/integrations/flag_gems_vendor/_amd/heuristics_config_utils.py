"""None of our own: FlagGems then takes its default heuristics."""

HEURISTICS_CONFIGS = {}
