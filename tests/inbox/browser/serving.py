"""`python serving.py STORE PORT`: an inbox in a process of its own, for two people, one who looks on, and a program."""

import sys

import uvicorn

from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.rights import Member
from turnwise.inbox.sqlite import SQLiteInboxStore

KEY = "a key under which the items of this inbox lie"
ANN, BOB, PROGRAM = "ann-has-this-token-to-herself", "bob-has-this-token-to-himself", "the-program-shows-this-token"
BOSS = "the-boss-looks-on-with-this-token"
TOKENS: dict[str, str | Member] = {ANN: "ann", BOB: "bob", PROGRAM: "program", BOSS: Member("boss", "reader")}


def main() -> None:
    store = SQLiteInboxStore(sys.argv[1], [KEY])
    app = create_app(Inbox(store), Door(TOKENS, store))
    uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", timeout_graceful_shutdown=1)


if __name__ == "__main__":
    main()
