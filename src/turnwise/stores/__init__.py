"""What instances of one server share, in databases that people run already. Each is imported when it is used."""
