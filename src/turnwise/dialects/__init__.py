"""The wires: the only room where protocol versions are compared and camelCase lives.

Each wire is a file named by its date or proposal. What all of them share stands beside them: `asking` (questions and
their answers), `content` (results), `listing` (what a server offers), `mirrored` (HTTP headers that repeat the body).
"""
