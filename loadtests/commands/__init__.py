"""Commands of ``draftproof`` that need no database."""
