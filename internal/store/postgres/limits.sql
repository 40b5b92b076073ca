-- What may run at once, over all processes, and who gets the next place, as package sqlite has it.

CREATE TABLE limits (
  kind TEXT NOT NULL, name TEXT NOT NULL, most BIGINT NOT NULL,
  PRIMARY KEY (kind, name)
);
ALTER TABLE runs ADD COLUMN priority BIGINT NOT NULL DEFAULT 0;
ALTER TABLE rollouts ADD COLUMN tags TEXT NOT NULL DEFAULT '';
CREATE INDEX rollouts_lanes ON rollouts (run_id, agent, tags, state, runnable_at, ordinal) WHERE runnable_at IS NOT NULL;
CREATE INDEX triggers_started ON triggers (source) WHERE state IN ('starting', 'waiting');
