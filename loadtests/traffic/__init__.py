"""Traffic: rows, parts, arrival processes and the plan of a trial. Pure: no database, no network."""
