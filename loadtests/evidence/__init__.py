"""Evidence: what a trial leaves behind, as content-addressed files that are written once."""
