-- Where the files of rollouts are, and those that the store itself has, as package sqlite has them.

CREATE TABLE kept (
  rollout_id TEXT PRIMARY KEY,
  segment BIGINT NOT NULL,
  place TEXT NOT NULL,
  machine TEXT NOT NULL,
  files BYTEA
);

CREATE TABLE kept_blocks (
  rollout_id TEXT NOT NULL, sum TEXT NOT NULL,
  PRIMARY KEY (rollout_id, sum)
);
CREATE INDEX kept_blocks_sum ON kept_blocks (sum);

CREATE TABLE blocks (
  sum TEXT PRIMARY KEY,
  data BYTEA NOT NULL,
  asked_at BIGINT NOT NULL
);
ALTER TABLE blocks ALTER COLUMN data SET STORAGE EXTERNAL; -- it is compressed
CREATE INDEX blocks_asked ON blocks (asked_at);

-- So far the machine that had opened the store first had the files of all rollouts.
INSERT INTO kept (rollout_id, segment, place, machine)
  SELECT r.rollout_id, r.segment, split_part(m.value, ' ', 1), substr(m.value, strpos(m.value, ' ') + 1)
  FROM rollouts r, meta m WHERE m.key = 'files' AND r.segment > 0;
DELETE FROM meta WHERE key = 'files';
