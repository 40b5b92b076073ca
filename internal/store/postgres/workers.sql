-- The processes that look after all runs, as package sqlite has them.

CREATE TABLE workers (
  worker_id TEXT PRIMARY KEY,
  name TEXT NOT NULL, tags TEXT NOT NULL, version TEXT NOT NULL, lacks TEXT NOT NULL,
  seen_at BIGINT NOT NULL
);
