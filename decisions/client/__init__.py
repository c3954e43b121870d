"""The commands of ``draftproof`` that ask a server over its API: docs/api.md. They need no database, no settings."""
