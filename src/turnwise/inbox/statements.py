"""What `PostgresInboxStore` says to PostgreSQL. `{0}` begins the names of tables.

Names are bytes: PostgreSQL does not take every text for text, and as bytes they sort as SQLite sorts them.
"""

from .._postgres import AHEAD
from .model import PLACE
from .records import BEGINNING, Row, Seen

VERSIONS = (
    """
CREATE TABLE {0}items (
    id bytea PRIMARY KEY, revision bigint NOT NULL, status text NOT NULL, is_ended boolean NOT NULL,
    server bytea NOT NULL, target bytea NOT NULL, caller bytea NOT NULL, questions bigint NOT NULL,
    asked float8 NOT NULL, until float8, changed float8 NOT NULL, is_task boolean NOT NULL, due float8,
    headline bytea NOT NULL, body bytea NOT NULL,
    claim text, claimed_until float8 NOT NULL DEFAULT 0, mark bigint NOT NULL
);
CREATE INDEX ON {0}items (asked, id) WHERE NOT is_ended;
CREATE INDEX ON {0}items (changed, id);
CREATE INDEX ON {0}items (changed, id) WHERE is_ended;
CREATE INDEX ON {0}items (status, caller);
CREATE INDEX ON {0}items (due) WHERE due IS NOT NULL;
CREATE INDEX ON {0}items (mark);
CREATE TABLE {0}hooks (
    id text PRIMARY KEY, made float8 NOT NULL, due float8 NOT NULL, tries bigint NOT NULL, body bytea NOT NULL,
    claimed_until float8 NOT NULL DEFAULT 0
);
CREATE INDEX ON {0}hooks (due);
CREATE TABLE {0}sessions (name text PRIMARY KEY, body bytea NOT NULL, until float8 NOT NULL);
CREATE TABLE {0}marks (mark bigint NOT NULL);
INSERT INTO {0}marks VALUES (0);
""",
)
"""What makes each version of the tables out of the one before."""

SEEN = ", ".join(Seen._fields)
COLUMNS = ", ".join(Row._fields)
VALUES = ", ".join(f"${number}" for number in range(1, len(Row._fields) + 1))
SET = ", ".join(f"{name} = ${number}" for number, name in enumerate(Row._fields, 1) if name != "id")

# The row of marks is locked until the transaction ends: marks are seen in the order in which they were given.
MARK = "UPDATE {0}marks SET mark = mark + 1 RETURNING mark"
ADD = f"INSERT INTO {{0}}items ({COLUMNS}, mark) VALUES ({VALUES}, $16) ON CONFLICT (id) DO NOTHING RETURNING id"
PUT = f"UPDATE {{0}}items SET {SET}, mark = $16, claim = NULL, claimed_until = 0 WHERE id = $1"
CHANGE = f"UPDATE {{0}}items SET {SET}, mark = $16 WHERE id = $1"
REVISION = "SELECT revision FROM {0}items WHERE id = $1 FOR UPDATE"
LOCK = "SELECT id, revision, due, body FROM {0}items WHERE id = $1 FOR UPDATE"
GET = "SELECT id, revision, due, body FROM {0}items WHERE id = $1"
# Who claims says last what its own clock says.
CLAIM = f"""
UPDATE {{0}}items SET claim = $3, claimed_until = $2 + {AHEAD} - $5 WHERE id = (
    SELECT id FROM {{0}}items
    WHERE due <= $1 AND claimed_until <= $1 + {AHEAD} - $5 AND NOT server = ANY ($4::bytea[]) AND NOT id = ANY ($4)
    ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING id, revision, due, body
"""
CLAIM_ONE = f"""
UPDATE {{0}}items SET claim = $3, claimed_until = $2 + {AHEAD} - $5
WHERE id = $4 AND claimed_until <= $1 + {AHEAD} - $5 AND NOT is_ended
RETURNING id, revision, due, body
"""
UNREADABLE = "UPDATE {0}items SET claim = NULL, claimed_until = 0, due = $2 WHERE id = $1 AND claim = $3"
RENEW = f"UPDATE {{0}}items SET claimed_until = $3 + {AHEAD} - $4 WHERE id = $1 AND claim = $2 RETURNING id"
RELEASE = """
UPDATE {0}items SET claim = NULL, claimed_until = 0, due = CASE WHEN revision = $3 THEN $4 ELSE due END
WHERE id = $1 AND claim = $2
"""
NEXT = """
SELECT least(
    (SELECT min(due) FROM {0}items WHERE due > $1), (SELECT min(due) FROM {0}hooks WHERE due > $1)
)
"""
SINCE = "SELECT id FROM {0}items WHERE mark > $1 AND mark <= $2 ORDER BY mark"
NOW = "SELECT mark FROM {0}marks"
# Rows that somebody holds are left for the next time: two who purge neither wait for each other nor deadlock.
PURGE = """
WITH gone AS (
    DELETE FROM {0}items WHERE id = ANY (ARRAY (
        SELECT id FROM {0}items WHERE is_ended AND changed <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED
    )) RETURNING id
) SELECT count(*) FROM gone
"""
ADD_HOOK = "INSERT INTO {0}hooks (id, made, due, tries, body) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING"
CLAIM_HOOK = f"""
UPDATE {{0}}hooks SET claimed_until = $2 + {AHEAD} - $4 WHERE id = (
    SELECT id FROM {{0}}hooks
    WHERE due <= $1 AND claimed_until <= $1 + {AHEAD} - $4 AND NOT left(id, {PLACE}) = ANY ($3::text[])
    ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED
) RETURNING id, body, made, due, tries
"""
END_HOOK = "DELETE FROM {0}hooks WHERE id = $1"
POSTPONE_HOOK = "UPDATE {0}hooks SET due = $2, tries = $3, claimed_until = 0 WHERE id = $1"
KEEP_SESSION = """
INSERT INTO {0}sessions VALUES ($1, $2, $3)
ON CONFLICT (name) DO UPDATE SET body = excluded.body, until = excluded.until
"""
FIND_SESSION = "SELECT body FROM {0}sessions WHERE name = $1 AND until > $2"
DROP_SESSION = "DELETE FROM {0}sessions WHERE name = $1"
OLD_SESSIONS = "DELETE FROM {0}sessions WHERE until <= $1"
BEGINNINGS = f"SELECT substring(headline FROM 1 FOR {BEGINNING}), is_ended, count(*) FROM {{0}}items GROUP BY 1, 2"
# Rows are locked in the order of their ids, and nothing else with them: two who do so wait for each other at most.
OLD_ITEMS = f"""
SELECT id, headline, body FROM {{0}}items
WHERE NOT is_ended AND id > $1 AND substring(headline FROM 1 FOR {BEGINNING}) = ANY ($2::bytea[])
ORDER BY id LIMIT $3 FOR UPDATE
"""
RESEAL_ITEM = "UPDATE {0}items SET headline = $2, body = $3 WHERE id = $1"
OLD_HOOKS = f"""
SELECT id, body FROM {{0}}hooks WHERE substring(body FROM 1 FOR {BEGINNING}) = ANY ($1::bytea[])
ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED
"""
RESEAL_HOOK = "UPDATE {0}hooks SET body = $2 WHERE id = $1"
COUNT = "SELECT count(*) FROM {0}items WHERE status = ANY ($1::text[]) AND ($2::bytea IS NULL OR caller = $2)"


def cut(*, by_asked: bool, is_ended: bool | None, has_place: bool) -> str:
    """The statement that reads a part of a list."""
    column, way, sign = ("asked", "", ">") if by_asked else ("changed", " DESC", "<")
    where = {None: "", True: "is_ended AND ", False: "NOT is_ended AND "}[is_ended]
    place = f" AND ({column}, id) {sign} ($4, $5)" if has_place else ""
    return (
        f"SELECT {SEEN} FROM {{0}}items WHERE {where}status = ANY ($1::text[]) "
        f"AND ($2::bytea IS NULL OR caller = $2){place} ORDER BY {column}{way}, id{way} LIMIT $3"
    )
