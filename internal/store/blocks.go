package store

import (
	"context"
	"encoding/json"
	"time"
)

// MaxBlock is the most content of a block, in bytes.
const MaxBlock = 1 << 20

// Block is a piece of a file.
type Block struct {
	// Sum is the SHA-256 of its content, in hex. Blocks of the same content are one.
	Sum string
	// Data is its content as zstd has compressed it.
	Data []byte
}

// Kept says where the files of a rollout are that a later segment, or its evaluators, go on with.
// CommitSegment writes it when a segment was suspended or completed.
type Kept struct {
	// Segment is the segment that was committed.
	Segment int
	// Place is the Place.Files of the process that committed it, and Machine the machine of that
	// process. Both are empty for a store in a folder, whose files are beside it.
	Place, Machine string
	// Files describes the files that the store has, a document of the caller's; nil if it has none,
	// and they are at the place alone.
	Files json.RawMessage
	// Blocks are the sums of the blocks that Files needs.
	Blocks []string
}

// Elsewhere returns the machine that has the files; empty if they are in the place here, which is a
// Place.Files, or in the folder of the store.
func (k Kept) Elsewhere(here string) string {
	if k.Place == here {
		return ""
	}
	return k.Machine
}

// Blocks keeps files of rollouts that are suspended or to be scored, in blocks. What no rollout needs is removed by
// PruneBlocks alone.
type Blocks interface {
	// KeepsFiles is how many bytes of one rollout's files the store takes, 0 if it takes none.
	KeepsFiles() int64
	// Missing returns those of the sums of which there is no block. It makes sure that the others are
	// not removed for a day.
	Missing(ctx context.Context, sums []string) ([]string, error)
	// PutBlocks stores blocks, in place of others with their sums. They are durable when a segment
	// that needs them is committed.
	PutBlocks(ctx context.Context, blocks []Block) error
	// Blocks calls f with the blocks of some sums. Those that are missing are left out.
	Blocks(ctx context.Context, sums []string, f func(Block) error) error
	// Kept returns where the files of a rollout are, or ErrNotFound if nothing was recorded.
	Kept(ctx context.Context, rolloutID string) (Kept, error)
	// MoveKept records that the files of a rollout are here now, which was claimed for its evaluators.
	MoveKept(ctx context.Context, tok Token) error
	// PruneBlocks removes the blocks that no open rollout needs, and which nobody has asked for since
	// the given age. It returns how many they were.
	PruneBlocks(ctx context.Context, age time.Duration) (int, error)
}
