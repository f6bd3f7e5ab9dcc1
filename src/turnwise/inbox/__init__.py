"""The inbox: where the questions of calls and tasks wait for a person, and whence the calls go on once they have it."""
