"""Pure statistics of trials and pairs: arrays in, numbers out. Every function names its source."""
