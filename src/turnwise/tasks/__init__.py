"""Persistent tasks: the same rounds, with the ledger in a store in place of a token.

A task is a call that outlives its request. Its legs are played by whoever claims them; between two legs nothing is held
but a row. `model` has the words and the store's interface, `sqlite` and `postgres` the stores, `runtime` plays legs,
`dispatch` finds the legs that are due.
"""
