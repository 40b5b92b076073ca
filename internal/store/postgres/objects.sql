-- Blocks that are outside of the database, as package sqlite has them.

ALTER TABLE blocks ADD COLUMN object TEXT NOT NULL DEFAULT '';
ALTER TABLE blocks ADD COLUMN starts_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE blocks ADD COLUMN stored BIGINT NOT NULL DEFAULT 0;
CREATE INDEX blocks_object ON blocks (object) WHERE object <> '';
