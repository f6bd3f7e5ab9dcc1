"""What `PostgresTaskStore` says to PostgreSQL. `{0}` begins the names of tables."""

from .._postgres import AHEAD
from .model import CANCELLED_MESSAGE

VERSIONS = (
    """
CREATE TABLE {0}tasks (
    id bytea PRIMARY KEY, principal text NOT NULL, tool text NOT NULL, status text NOT NULL, message text,
    created float8 NOT NULL, updated float8 NOT NULL, ttl float8, payload bytea, waits bytea[] NOT NULL DEFAULT '{}',
    owner text, leased_until float8 NOT NULL DEFAULT 0, wake_at float8 NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0, cancelling boolean NOT NULL DEFAULT false, call bytea NOT NULL,
    state bytea NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX ON {0}tasks (wake_at) WHERE status = 'working';
CREATE INDEX ON {0}tasks (principal, id);
CREATE INDEX ON {0}tasks ((created + ttl)) WHERE ttl IS NOT NULL;
CREATE TABLE {0}task_entries (
    task bytea NOT NULL, key bytea NOT NULL, entry bytea NOT NULL, number bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (task, key)
);
CREATE TABLE {0}task_answers (
    task bytea NOT NULL, key bytea NOT NULL, answer bytea NOT NULL, PRIMARY KEY (task, key)
);
""",
    "CREATE INDEX ON {0}tasks (principal) WHERE status IN ('working', 'input_required')",
)
"""What makes each version of the tables out of the one before."""

# Leases are by the database's clock; who asks says last what its own says.
FACTS = (
    "id, principal, tool, status, message, created, updated, ttl, payload, waits, owner, wake_at, epoch, "
    "CASE WHEN leased_until > 0 THEN leased_until - {ahead} ELSE 0 END AS leased_until"
)
HELD = "id = $1 AND epoch = $2 AND status = 'working' AND owner IS NOT NULL"
OVER = "status IN ('completed', 'failed', 'cancelled')"
CLEARED = """
entries_gone AS (DELETE FROM {0}task_entries USING changed WHERE task = changed.id),
answers_gone AS (DELETE FROM {0}task_answers USING changed WHERE task = changed.id)
"""
LEG = "tool, epoch, CASE WHEN status = 'working' THEN wake_at END AS due"

# An attempt whose reply was lost is made again, and finds its own row.
CREATE = f"""
INSERT INTO {{0}}tasks AS task (id, principal, tool, status, created, updated, ttl, wake_at, call, state)
VALUES ($1, $2, $3, 'working', $4, $4, $5, $4, $6, $7)
ON CONFLICT (id) DO UPDATE SET id = excluded.id WHERE task.call = excluded.call
RETURNING {LEG}
"""
GET = f"""
SELECT {FACTS.format(ahead=f"({AHEAD} - $3)")} FROM {{0}}tasks WHERE id = $1 AND ($2::text IS NULL OR principal = $2)
"""
RESPOND = """
WITH task AS (
    SELECT status, waits FROM {0}tasks WHERE id = $1 AND principal = $2 FOR UPDATE
), given AS (
    SELECT key, answer FROM task, unnest($3::bytea[], $4::bytea[]) AS answers (key, answer)
    WHERE status = 'input_required' AND key = ANY (waits)
), kept AS (
    INSERT INTO {0}task_answers SELECT $1, key, answer FROM given ON CONFLICT DO NOTHING
), missing AS (
    SELECT ARRAY (
        SELECT key FROM task, unnest(waits) WITH ORDINALITY AS open (key, place)
        WHERE key NOT IN (SELECT key FROM given) ORDER BY place
    ) AS waits
), changed AS (
    UPDATE {0}tasks AS whole SET waits = missing.waits, updated = $5, wake_at = $5,
        status = CASE WHEN cardinality(missing.waits) = 0 THEN 'working' ELSE 'input_required' END
    FROM missing WHERE id = $1 AND EXISTS (SELECT FROM given)
    RETURNING tool, epoch, CASE WHEN status = 'working' THEN wake_at END AS due
)
SELECT changed.* FROM task LEFT JOIN changed ON true
"""
CANCEL = f"""
WITH old AS (
    SELECT id, status = 'working' AND leased_until > $3 + {AHEAD} - $6 AS is_played FROM {{0}}tasks
    WHERE id = $1 AND ($2::text IS NULL OR principal = $2) AND NOT {OVER} FOR UPDATE
), changed AS (
    UPDATE {{0}}tasks AS task SET updated = $3, cancelling = is_played,
        status = CASE WHEN is_played THEN task.status ELSE 'cancelled' END,
        message = CASE WHEN is_played THEN message ELSE $4 END,
        payload = CASE WHEN is_played THEN payload END, waits = '{{}}',
        owner = CASE WHEN is_played THEN owner END, leased_until = CASE WHEN is_played THEN leased_until ELSE 0 END
    FROM old WHERE task.id = old.id RETURNING task.id, is_played
), entries_gone AS (
    DELETE FROM {{0}}task_entries USING changed WHERE task = changed.id AND NOT is_played
), answers_gone AS (
    DELETE FROM {{0}}task_answers USING changed WHERE task = changed.id AND NOT is_played
)
SELECT pg_notify($5, 'stop ' || encode(id, 'hex')) FROM changed WHERE is_played
"""
CLAIM = f"""
WITH free AS (
    SELECT tool FROM unnest($4::text[], $5::bigint[]) AS allowed (tool, most)
    WHERE most IS NULL OR most > (
        SELECT count(*) FROM {{0}}tasks AS other
        WHERE other.tool = allowed.tool AND status = 'working' AND leased_until > $1 + {AHEAD} - $6
    )
), found AS (
    SELECT id FROM {{0}}tasks
    WHERE status = 'working' AND wake_at <= $1 AND leased_until <= $1 + {AHEAD} - $6
    AND tool = ANY (ARRAY (SELECT tool FROM free)){{1}}
    ORDER BY wake_at LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE {{0}}tasks AS task SET epoch = epoch + 1, owner = $2, leased_until = $3 + {AHEAD} - $6
FROM found WHERE task.id = found.id
RETURNING task.id, epoch, tool, principal, call, state, wake_at, cancelling
"""
LEDGER = """
SELECT number, key, entry FROM {0}task_entries WHERE task = $1
UNION ALL SELECT NULL, key, answer FROM {0}task_answers WHERE task = $1 ORDER BY 1
"""
APPEND = f"""
WITH changed AS (
    UPDATE {{0}}tasks SET leased_until = $3 + {AHEAD} - $6 WHERE {HELD} RETURNING id, cancelling
), added AS (
    INSERT INTO {{0}}task_entries (task, key, entry)
    SELECT id, key, entry FROM changed, unnest($4::bytea[], $5::bytea[]) WITH ORDINALITY AS new (key, entry, place)
    ORDER BY place ON CONFLICT (task, key) DO UPDATE SET entry = excluded.entry
)
SELECT cancelling FROM changed
"""
RENEW = f"UPDATE {{0}}tasks SET leased_until = $3 + {AHEAD} - $4 WHERE {HELD} RETURNING cancelling"
NOTE = f"UPDATE {{0}}tasks SET message = $3, updated = $4 WHERE {HELD} RETURNING id"
STOPPED = f"""
message = CASE WHEN cancelling THEN '{CANCELLED_MESSAGE}' ELSE message END, cancelling = false,
owner = NULL, leased_until = 0
"""
PARK = f"""
WITH changed AS (
    UPDATE {{0}}tasks SET state = $3, updated = $6, {STOPPED},
        status = CASE WHEN cancelling THEN 'cancelled' ELSE 'input_required' END,
        waits = CASE WHEN cancelling THEN '{{}}' ELSE $4::bytea[] END,
        payload = CASE WHEN NOT cancelling THEN $5::bytea END
    WHERE {HELD} RETURNING id
), {CLEARED}
SELECT id FROM changed
"""
POSTPONE = f"""
WITH changed AS (
    UPDATE {{0}}tasks SET state = $3, wake_at = $4, updated = $5, {STOPPED},
        status = CASE WHEN cancelling THEN 'cancelled' ELSE 'working' END
    WHERE {HELD} RETURNING id, {LEG}
), {CLEARED}
SELECT * FROM changed
"""
RELEASE = f"""
WITH changed AS (
    UPDATE {{0}}tasks SET {STOPPED}, updated = CASE WHEN cancelling THEN $3 ELSE updated END,
        status = CASE WHEN cancelling THEN 'cancelled' ELSE 'working' END
    WHERE {HELD} RETURNING id, {LEG}
), entries_gone AS (
    DELETE FROM {{0}}task_entries USING changed WHERE task = changed.id AND due IS NULL
), answers_gone AS (
    DELETE FROM {{0}}task_answers USING changed WHERE task = changed.id AND due IS NULL
)
SELECT * FROM changed
"""
FINISH = f"""
WITH changed AS (
    UPDATE {{0}}tasks SET status = $3, payload = $4, message = coalesce($5, message), updated = $6, waits = '{{}}',
        owner = NULL, leased_until = 0, cancelling = false
    WHERE {HELD} RETURNING id
), {CLEARED}
SELECT id FROM changed
"""
DUE = "SELECT min(wake_at) FROM {0}tasks WHERE status = 'working' AND wake_at > $1"
OVERDUE = f"""
SELECT id, tool, epoch FROM {{0}}tasks
WHERE status = 'working' AND wake_at <= $1 AND leased_until <= $1 + {AHEAD} - $4 AND tool = ANY ($2::text[])
ORDER BY wake_at LIMIT $3
"""
LIST = f"""
SELECT {FACTS.format(ahead=f"({AHEAD} - $5)")} FROM {{0}}tasks
WHERE id > $1 AND ($2::text IS NULL OR principal = $2) AND ($3::text IS NULL OR status = $3) ORDER BY id LIMIT $4
"""
UNFINISHED = """
SELECT count(*) FROM (
    SELECT FROM {0}tasks WHERE principal = $1 AND status IN ('working', 'input_required')
    AND (ttl IS NULL OR created + ttl > $2) LIMIT $3
) AS own
"""
COUNTS = "SELECT status, count(*), min(created) FROM {0}tasks GROUP BY status"
# Rows that somebody holds are left for the next time: two who purge neither wait for each other nor deadlock.
PURGE = f"""
WITH changed AS (
    DELETE FROM {{0}}tasks WHERE id = ANY (ARRAY (
        SELECT id FROM {{0}}tasks WHERE ttl IS NOT NULL AND created + ttl <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED
    )) RETURNING id
), {CLEARED}
SELECT count(*) FROM changed
"""
