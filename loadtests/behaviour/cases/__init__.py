"""The cases of the registry, grouped by what they ask about."""
