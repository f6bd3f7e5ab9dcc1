import json
import logging


class JSONLines(logging.Formatter):
    """One line of JSON for each record, with the facts of the round where there are some."""

    facts = ("flow_id", "round", "result_type", "ledger_bytes")

    def format(self, record: logging.LogRecord) -> str:
        line = {"logger": record.name, "level": record.levelname, "message": record.getMessage()}
        line |= {name: getattr(record, name) for name in self.facts if hasattr(record, name)}
        return json.dumps(line)


def set_up(handler: logging.Handler) -> None:
    handler.setFormatter(JSONLines())
    log = logging.getLogger("turnwise")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
