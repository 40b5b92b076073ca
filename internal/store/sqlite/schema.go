package sqlite

// applicationID marks an SQLite file as an evalrun store ("evlr").
const applicationID = 0x65766c72

// migrations bring a store from version i to version i+1. They are never edited once released, only
// added to. Times are microseconds since 1970 by the store's clock, durations microseconds.
var migrations = []string{`
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE holders (
  holder_id  TEXT PRIMARY KEY,   -- one for each opening of the store that claims
  pid        INTEGER NOT NULL,
  start_time TEXT NOT NULL,      -- of the process, so that a pid that came again is not taken for it
  boot_id    TEXT NOT NULL,
  pid_ns     TEXT NOT NULL,      -- only a holder of the same boot and PID namespace can be seen to be dead
  opened_at  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE runs (
  run_id              TEXT PRIMARY KEY,
  name                TEXT NOT NULL,
  evaluation_set_id   TEXT NOT NULL,
  evaluation_set_name TEXT NOT NULL,
  retry_of            TEXT NOT NULL,
  created_at          INTEGER NOT NULL,
  finished_at         INTEGER,            -- set by the transaction that leaves nothing open
  open                INTEGER NOT NULL,   -- rollouts that can still change
  seq                 INTEGER NOT NULL DEFAULT 0,  -- of the last event
  revision            INTEGER NOT NULL DEFAULT 0   -- grows with every transaction that changes the run
) WITHOUT ROWID;

-- Apart from runs, whose rows change all the time: a plan can be large and never changes.
CREATE TABLE plans (run_id TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE evaluations (
  run_id  TEXT NOT NULL, ordinal INTEGER NOT NULL, evaluation_id TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (run_id, ordinal)
);

CREATE TABLE rollouts (
  rollout_id      TEXT PRIMARY KEY,
  run_id          TEXT NOT NULL,
  ordinal         INTEGER NOT NULL,
  evaluation      INTEGER NOT NULL,     -- ordinal in evaluations
  evaluation_id   TEXT NOT NULL,
  evaluation_name TEXT NOT NULL,
  agent           TEXT NOT NULL,
  epoch           INTEGER NOT NULL,
  resume_all      INTEGER NOT NULL,
  accepts_faults  INTEGER NOT NULL,
  state           TEXT NOT NULL,
  state_since     INTEGER NOT NULL,
  runnable_at     INTEGER,              -- null while it is held, waits or has ended
  owner           TEXT,                 -- holder, while it is running or evaluating
  renewed_at      INTEGER,              -- when the lease was last prolonged
  lease_until     INTEGER,
  fence           INTEGER NOT NULL DEFAULT 0,  -- grows with each claim
  segment         INTEGER NOT NULL DEFAULT 0,
  attempt         INTEGER NOT NULL DEFAULT 0,
  failures        INTEGER NOT NULL DEFAULT 0,
  suspensions     INTEGER NOT NULL DEFAULT 0,
  cancel          INTEGER NOT NULL DEFAULT 0,  -- its holder is to end it
  fault           BLOB,
  score           REAL,
  created_at      INTEGER NOT NULL,
  finished_at     INTEGER,
  working INTEGER NOT NULL DEFAULT 0, waiting INTEGER NOT NULL DEFAULT 0,
  queued  INTEGER NOT NULL DEFAULT 0, evaluating INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX rollouts_run ON rollouts (run_id, ordinal);
CREATE INDEX rollouts_runnable ON rollouts (runnable_at, ordinal, run_id) WHERE runnable_at IS NOT NULL;
CREATE INDEX rollouts_owner ON rollouts (owner) WHERE owner IS NOT NULL;

CREATE TABLE segments (
  rollout_id TEXT NOT NULL, segment INTEGER NOT NULL, attempt INTEGER NOT NULL,
  outcome TEXT NOT NULL, started_at INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  output BLOB, fault BLOB, files BLOB,
  info BLOB,                             -- what the agent's side reports of the attempt: isolation, servers, usage
  PRIMARY KEY (rollout_id, segment, attempt)
);

CREATE TABLE triggers (
  id           INTEGER PRIMARY KEY,      -- keeps the order in which they were made
  trigger_id   TEXT NOT NULL UNIQUE,
  run_id       TEXT NOT NULL,
  rollout_id   TEXT NOT NULL,
  interrupt_id TEXT NOT NULL,
  occurrence   INTEGER NOT NULL,
  sibling      INTEGER NOT NULL,
  type TEXT NOT NULL, name TEXT NOT NULL, source TEXT NOT NULL, item_key TEXT NOT NULL,
  folder_path TEXT NOT NULL, folder_key TEXT NOT NULL, spec BLOB NOT NULL,
  state        TEXT NOT NULL,
  checked      INTEGER NOT NULL,         -- its source can be asked
  cancel       INTEGER NOT NULL DEFAULT 0,  -- its job is to be cancelled, once
  segment      INTEGER NOT NULL,
  taken_by     INTEGER NOT NULL DEFAULT 0,
  created_at   INTEGER NOT NULL,
  started_at   INTEGER,
  deadline     INTEGER,
  next_check   INTEGER,
  due_at       INTEGER,                  -- when somebody must look: the lesser of next_check and deadline, or the claim's end
  owner        TEXT,
  fence        INTEGER NOT NULL DEFAULT 0,
  attempts     INTEGER NOT NULL DEFAULT 0,
  checks       INTEGER NOT NULL DEFAULT 0,
  delivered_at INTEGER, status TEXT, payload BLOB, fault BLOB
);
CREATE INDEX triggers_rollout ON triggers (rollout_id);
CREATE INDEX triggers_due ON triggers (due_at, run_id, owner) WHERE due_at IS NOT NULL;
CREATE INDEX triggers_owner ON triggers (owner) WHERE owner IS NOT NULL;
CREATE INDEX triggers_item ON triggers (item_key, source);
CREATE INDEX triggers_open ON triggers (run_id) WHERE state IN ('intended', 'starting', 'waiting');

CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY,
  trigger_id TEXT NOT NULL,              -- empty while it is parked under source and item key, instead of an id
  source TEXT NOT NULL, item_key TEXT NOT NULL,
  status TEXT NOT NULL, payload BLOB, fault BLOB, delivered_by TEXT NOT NULL,
  received_at INTEGER NOT NULL, disposition TEXT NOT NULL
);
CREATE INDEX deliveries_trigger ON deliveries (trigger_id);
CREATE INDEX deliveries_parked ON deliveries (source, item_key) WHERE disposition = 'parked';
CREATE INDEX deliveries_old ON deliveries (received_at) WHERE disposition = 'parked';

CREATE TABLE results (
  rollout_id TEXT NOT NULL, evaluator_id TEXT NOT NULL, ordinal INTEGER NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (rollout_id, evaluator_id)
);

CREATE TABLE events (
  run_id TEXT NOT NULL, seq INTEGER NOT NULL, time INTEGER NOT NULL, type TEXT NOT NULL,
  rollout_id TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
`, `
CREATE TABLE calls (
  call_id    TEXT PRIMARY KEY,
  rollout_id TEXT NOT NULL,
  server TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL,  -- what calls are equal by; of the arguments the digest
  ordinal    INTEGER NOT NULL,           -- how many equal calls have ended before
  work       BLOB,                       -- what the call has started, once that is known
  segment    INTEGER, attempt INTEGER,   -- the attempt of a segment whose agent has got its final result, null if none has
  begun_at   INTEGER NOT NULL, ended_at INTEGER,
  UNIQUE (rollout_id, server, tool, arguments, ordinal)
) WITHOUT ROWID;
`, `
CREATE TABLE mcp_tasks (
  id         INTEGER PRIMARY KEY,        -- keeps the order in which they were made
  task_id    TEXT NOT NULL UNIQUE,       -- what the client knows it by
  access     TEXT NOT NULL,              -- the digest of the token of whoever may ask for it
  session    TEXT NOT NULL,              -- likewise the legacy session; empty for clients that have none
  server TEXT NOT NULL, tool TEXT NOT NULL,
  status TEXT NOT NULL, message TEXT NOT NULL,
  created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,           -- when it is forgotten, whatever it is then
  poll       INTEGER NOT NULL,
  work       BLOB,                       -- what another gateway needs to go on with it; null if it ends with this one
  input_requests BLOB, result BLOB, error BLOB,
  told       INTEGER NOT NULL            -- the client was told of its end without having asked
);
CREATE INDEX mcp_tasks_session ON mcp_tasks (access, session, id);
CREATE INDEX mcp_tasks_expires ON mcp_tasks (expires_at);
CREATE INDEX mcp_tasks_open ON mcp_tasks (access, id) WHERE status IN ('working', 'input_required');

CREATE TABLE mcp_sessions (
  session_id TEXT PRIMARY KEY,
  access TEXT NOT NULL, endpoint TEXT NOT NULL, version TEXT NOT NULL,
  capabilities BLOB, info BLOB,          -- the client's
  created_at INTEGER NOT NULL, used_at INTEGER NOT NULL
) WITHOUT ROWID;
`, `
ALTER TABLE triggers ADD COLUMN digest TEXT NOT NULL DEFAULT '';  -- of what the agent waits for; empty if nobody has made one
ALTER TABLE triggers ADD COLUMN overdue_since INTEGER;            -- when it was first claimed after its deadline
ALTER TABLE triggers ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;  -- calls of its source that failed, since the last that did not
ALTER TABLE triggers ADD COLUMN last_error TEXT NOT NULL DEFAULT '';  -- of the last of them
-- A parked delivery that is addressed by source and item key is for everybody who comes to wait for it: each gets a copy.
ALTER TABLE deliveries ADD COLUMN parked_id INTEGER;
CREATE INDEX deliveries_copies ON deliveries (parked_id) WHERE parked_id IS NOT NULL;
`, `
-- What an executor looks at again and again, whatever the number of runs and triggers that have ended.
CREATE INDEX runs_open ON runs (run_id) WHERE finished_at IS NULL;
CREATE INDEX triggers_listed ON triggers (id) WHERE state IN ('intended', 'starting', 'waiting');
`, `
-- How often in a row evalrun itself has failed with the current segment of a rollout or with its evaluators, in whichever process.
ALTER TABLE rollouts ADD COLUMN internal_failures INTEGER NOT NULL DEFAULT 0;
`, `
CREATE TABLE jobs (
  run_id       TEXT PRIMARY KEY,         -- the run that was submitted as a job
  capability   TEXT NOT NULL, submitted_by TEXT NOT NULL, payload BLOB NOT NULL,
  max_retries  INTEGER, max_duration INTEGER,
  deadline     INTEGER,
  submitted_at INTEGER NOT NULL,
  status       TEXT NOT NULL,            -- working until it has ended
  error        TEXT NOT NULL DEFAULT '',
  ended_at     INTEGER,
  due_at       INTEGER,                  -- when somebody must act: at the deadline, or when the grace of its cancellation is over
  seq          INTEGER NOT NULL DEFAULT 0  -- of the last event
) WITHOUT ROWID;
CREATE INDEX jobs_listed ON jobs (submitted_at, run_id);
CREATE INDEX jobs_due ON jobs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE job_events (
  run_id TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL,
  payload BLOB, trace_context BLOB, posted_by TEXT NOT NULL, created_at INTEGER NOT NULL,
  PRIMARY KEY (run_id, seq)
) WITHOUT ROWID;
`, `
-- A question that the job of another trigger asks a person.
ALTER TABLE triggers ADD COLUMN asked_by TEXT NOT NULL DEFAULT '';  -- the trigger of that job; empty for all other triggers
CREATE INDEX triggers_asked_by ON triggers (asked_by) WHERE asked_by <> '';
`, `
CREATE TABLE notify_targets (
  run_id TEXT NOT NULL,                  -- of whose events it is told; empty for those of every run
  target TEXT NOT NULL,                  -- what the process that tells it knows it by
  types  TEXT NOT NULL,                  -- of the events, a JSON array
  until  INTEGER,                        -- when it is forgotten; null for a target of a run
  PRIMARY KEY (run_id, target)
) WITHOUT ROWID;

CREATE TABLE notifications (
  id         INTEGER PRIMARY KEY,
  run_id     TEXT NOT NULL, seq INTEGER NOT NULL,  -- the event that is to be told
  target     TEXT NOT NULL, of_run INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  due_at     INTEGER,                    -- when it is tried, or tried again; null if it was given up
  owner      TEXT,                       -- who is sending it
  attempts   INTEGER NOT NULL DEFAULT 0,
  parts      INTEGER NOT NULL DEFAULT 0, -- how many of its messages were sent
  last_error TEXT NOT NULL DEFAULT ''
);
CREATE INDEX notifications_due ON notifications (due_at, target) WHERE due_at IS NOT NULL;
CREATE INDEX notifications_target ON notifications (target, id) WHERE due_at IS NOT NULL;
CREATE INDEX notifications_run ON notifications (run_id, id);
CREATE INDEX notifications_owner ON notifications (owner) WHERE owner IS NOT NULL;
`, `
CREATE TABLE access_tokens (
  token_id   TEXT PRIMARY KEY,
  name TEXT NOT NULL, scopes TEXT NOT NULL,
  digest     BLOB NOT NULL,              -- of the part of the token that is secret
  created_at INTEGER NOT NULL, expires_at INTEGER
) WITHOUT ROWID;
CREATE INDEX runs_listed ON runs (created_at, run_id);
`, `
-- Completed rollouts that are scored again.
CREATE TABLE rescorings (
  run_id TEXT NOT NULL, number INTEGER NOT NULL,  -- from 1; 0 is what the rollouts ended with
  data     BLOB NOT NULL,                -- what it scores with
  begun_at INTEGER NOT NULL, ended_at INTEGER,
  due INTEGER NOT NULL, scored INTEGER NOT NULL DEFAULT 0, unscored INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, number)
) WITHOUT ROWID;

CREATE TABLE rescored_evaluations (
  run_id TEXT NOT NULL, number INTEGER NOT NULL, evaluation_id TEXT NOT NULL, data BLOB NOT NULL,
  PRIMARY KEY (run_id, number, evaluation_id)
);

CREATE TABLE rescored (
  rollout_id TEXT PRIMARY KEY,
  number     INTEGER NOT NULL,           -- of the rescoring that its results are of
  due        INTEGER,                    -- the rescoring that is still to score it
  unscored   TEXT NOT NULL DEFAULT ''    -- why the last one has left it as it was
) WITHOUT ROWID;
ALTER TABLE results ADD COLUMN rescoring INTEGER NOT NULL DEFAULT 0;
`, `
-- What evaluators wait for.
ALTER TABLE triggers ADD COLUMN evaluator_id TEXT NOT NULL DEFAULT '';  -- empty for what an agent waits for
ALTER TABLE rollouts ADD COLUMN scorings INTEGER NOT NULL DEFAULT 0;    -- how often it has waited for its evaluators
ALTER TABLE rollouts ADD COLUMN scoring INTEGER NOT NULL DEFAULT 0;     -- the part of waiting in which it did
`, `
-- Who has answered, and when a source was asked.
ALTER TABLE deliveries ADD COLUMN person TEXT NOT NULL DEFAULT '';      -- who handed it in, where a person did
ALTER TABLE triggers ADD COLUMN delivered_by TEXT NOT NULL DEFAULT '';  -- these two are copied from the delivery that counts
ALTER TABLE triggers ADD COLUMN person TEXT NOT NULL DEFAULT '';
ALTER TABLE triggers ADD COLUMN checked_at INTEGER;                     -- when its source was asked last
UPDATE triggers SET delivered_by = coalesce((SELECT d.delivered_by FROM deliveries d WHERE d.trigger_id = triggers.trigger_id AND d.disposition = 'accepted'), '')
  WHERE delivered_at IS NOT NULL;
`, `
-- Batches of what judges are asked, at a provider of models.
CREATE TABLE judge_batches (
  batch_id    TEXT PRIMARY KEY,
  run_id TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL,
  state       TEXT NOT NULL,             -- open while requests are added to it; starting, started, ended
  requests    INTEGER NOT NULL, bytes INTEGER NOT NULL,
  external_id TEXT NOT NULL DEFAULT '',  -- the provider's; empty until that is known
  created_at  INTEGER NOT NULL,
  started_at  INTEGER,                   -- when it was first tried to start it
  due_at      INTEGER,                   -- when somebody must start or ask for it, or the claim's end
  owner       TEXT,
  fence       INTEGER NOT NULL DEFAULT 0,
  attempts    INTEGER NOT NULL DEFAULT 0,
  checks      INTEGER NOT NULL DEFAULT 0,
  failures    INTEGER NOT NULL DEFAULT 0,
  last_error  TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX judge_batches_run ON judge_batches (run_id);
CREATE INDEX judge_batches_open ON judge_batches (run_id, provider, model) WHERE state = 'open';
CREATE INDEX judge_batches_due ON judge_batches (due_at, run_id, owner) WHERE due_at IS NOT NULL;
CREATE INDEX judge_batches_owner ON judge_batches (owner) WHERE owner IS NOT NULL;

CREATE TABLE judge_requests (
  trigger_id TEXT PRIMARY KEY,           -- the one that waits for the answer
  batch_id   TEXT NOT NULL,
  body       BLOB NOT NULL               -- without secrets
) WITHOUT ROWID;
CREATE INDEX judge_requests_batch ON judge_requests (batch_id);
`, `
-- Equal questions are sent as one: they have the same custom id.
ALTER TABLE judge_requests ADD COLUMN custom_id TEXT NOT NULL DEFAULT ''; -- how the provider tells them apart
ALTER TABLE judge_requests ADD COLUMN merged INTEGER NOT NULL DEFAULT 0;  -- 1 if another one had this custom id before
UPDATE judge_requests SET custom_id = (SELECT t.item_key FROM triggers t WHERE t.trigger_id = judge_requests.trigger_id);
CREATE INDEX judge_requests_custom ON judge_requests (custom_id, batch_id);
`, `
-- Jobs that are processes of one machine.
ALTER TABLE triggers ADD COLUMN local INTEGER NOT NULL DEFAULT 0;  -- 1 if its job is one
ALTER TABLE triggers ADD COLUMN machine TEXT NOT NULL DEFAULT '';  -- which one, once the job is to be started
ALTER TABLE triggers ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';  -- of that machine; empty if its name was given
UPDATE triggers SET local = 1 WHERE source = 'exec' AND state = 'intended';
CREATE INDEX triggers_machine ON triggers (deadline) WHERE machine <> '' AND state IN ('intended', 'starting', 'waiting');
`, `
-- Where the files of rollouts are, and those that the store itself has.
CREATE TABLE kept (
  rollout_id TEXT PRIMARY KEY,
  segment INTEGER NOT NULL,              -- the one that was committed last
  place TEXT NOT NULL,                   -- the id of the folder of the store's files; empty if the store is that folder
  machine TEXT NOT NULL,                 -- of whoever committed the segment; likewise
  files BLOB                             -- what of the files is in blocks; null if nothing is
) WITHOUT ROWID;

CREATE TABLE kept_blocks (
  rollout_id TEXT NOT NULL, sum TEXT NOT NULL,
  PRIMARY KEY (rollout_id, sum)
) WITHOUT ROWID;
CREATE INDEX kept_blocks_sum ON kept_blocks (sum);

CREATE TABLE blocks (
  sum      TEXT PRIMARY KEY,             -- SHA-256 of the content, in hex
  data     BLOB NOT NULL,                -- the content, compressed
  asked_at INTEGER NOT NULL              -- when somebody last wanted it to be there, to the hour
);
CREATE INDEX blocks_asked ON blocks (asked_at);
`, `
-- What may run at once, over all processes, and who gets the next place.
CREATE TABLE limits (
  kind TEXT NOT NULL,                    -- all, agent or source
  name TEXT NOT NULL,                    -- of the agent or source; empty for all
  most INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) WITHOUT ROWID;
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rollouts ADD COLUMN tags TEXT NOT NULL DEFAULT '';  -- what whoever claims it must have, a sorted JSON array; empty if nothing
CREATE INDEX rollouts_lanes ON rollouts (run_id, agent, tags, state, runnable_at, ordinal) WHERE runnable_at IS NOT NULL;
CREATE INDEX triggers_started ON triggers (source) WHERE state IN ('starting', 'waiting');
`, `
-- The processes that look after all runs.
CREATE TABLE workers (
  worker_id TEXT PRIMARY KEY,            -- the id of the holder
  name    TEXT NOT NULL,                 -- for people
  tags    TEXT NOT NULL,                 -- what it has, a JSON array
  version TEXT NOT NULL,
  lacks   TEXT NOT NULL,                 -- why it could not go on with rollouts, a JSON array
  seen_at INTEGER NOT NULL
) WITHOUT ROWID;
`, `
-- Blocks that are outside of the database.
ALTER TABLE blocks ADD COLUMN object TEXT NOT NULL DEFAULT '';     -- the URL of the object that has it; empty if data is it
ALTER TABLE blocks ADD COLUMN starts_at INTEGER NOT NULL DEFAULT 0;  -- where in that object, in bytes
ALTER TABLE blocks ADD COLUMN stored INTEGER NOT NULL DEFAULT 0;   -- how many of them
CREATE INDEX blocks_object ON blocks (object) WHERE object <> '';
`}
