"""Files that outlive a process: read whatever they hold, locked, and dropped when they are many."""
