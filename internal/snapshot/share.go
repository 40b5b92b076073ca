package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/store"
)

// Blocks is where snapshots are kept for other machines. Blocks are known by the SHA-256 of their
// content, so those of several snapshots are shared.
type Blocks interface {
	Missing(ctx context.Context, sums []string) ([]string, error)
	PutBlocks(ctx context.Context, blocks []store.Block) error
	Blocks(ctx context.Context, sums []string, f func(store.Block) error) error
}

// Shared names a snapshot among blocks.
type Shared struct {
	// ID is that of the snapshot, also on the machine that has taken it.
	ID string `json:"id"`
	// Manifest are the blocks of the manifest, in order.
	Manifest []string `json:"manifest"`
}

// ErrLost says that blocks of a snapshot are missing or damaged. The error around it names them.
var ErrLost = errors.New("files of the snapshot are lost")

// So many blocks are stored or fetched at once, and so many bytes of them, unless it is a single one.
const (
	sharedAtOnce = 128
	mostAtOnce   = 4 * blockSize
)

// Size returns how many bytes of content a snapshot has; what is in it twice counts once.
func (s *Store) Size(name string) (size int64, err error) {
	m, err := s.read(name)
	if err != nil {
		return 0, err
	}
	for _, b := range m.Blocks {
		size += int64(b.Size)
	}
	return size, nil
}

// HasShared reports whether a snapshot of this name is here and the same as one that is shared.
func (s *Store) HasShared(name string, as Shared) bool {
	m, err := s.read(name)
	return err == nil && m.ID == as.ID
}

// Share stores a snapshot in blocks, those that are missing. It returns all blocks that the snapshot
// needs.
func (s *Store) Share(ctx context.Context, name string, in Blocks) (as Shared, needs []string, err error) {
	m, err := s.read(name)
	if err != nil {
		return as, nil, err
	}
	c, err := newCompressor()
	if err != nil {
		return as, nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	// The places of blocks mean nothing elsewhere.
	there := *m
	there.Blocks = make([]block, len(m.Blocks))
	where := make(map[string]*block, len(m.Blocks))
	for i := range m.Blocks {
		b := &m.Blocks[i]
		there.Blocks[i] = block{Sum: b.Sum, Size: b.Size}
		sum := hex.EncodeToString(b.Sum)
		where[sum], needs = b, append(needs, sum)
	}
	text, err := json.Marshal(there)
	if err != nil {
		return as, nil, err
	}
	as.ID = m.ID
	parts := map[string][]byte{}
	for part := range slices.Chunk(text, blockSize) {
		hash := sha256.Sum256(part)
		sum := hex.EncodeToString(hash[:])
		as.Manifest, needs, parts[sum] = append(as.Manifest, sum), append(needs, sum), c.EncodeAll(part, nil)
	}

	missing, err := in.Missing(ctx, needs)
	if err != nil {
		return as, nil, err
	}
	packs := &packReader{dir: s.Dir}
	defer packs.close()
	stored := func(sum string) int {
		if part, ok := parts[sum]; ok {
			return len(part)
		}
		return where[sum].Stored
	}
	return as, needs, eachBatch(ctx, missing, stored, func(ctx context.Context, sums []string) error {
		var blocks []store.Block
		for _, sum := range sums {
			data, ok := parts[sum]
			if !ok {
				data = make([]byte, where[sum].Stored)
				if err := packs.readAt(where[sum], data); err != nil {
					return err
				}
			}
			blocks = append(blocks, store.Block{Sum: sum, Data: data})
		}
		err := in.PutBlocks(ctx, blocks)
		failpoint.Hit("snapshot.shared")
		return err
	})
}

// eachBatch calls f with all of some sums, as many as are stored or fetched at once, and twice at the same time:
// more takes more memory. It returns the first error, after which nothing is begun.
func eachBatch(ctx context.Context, sums []string, size func(sum string) int, f func(context.Context, []string) error) error {
	var batches [][]string
	for bytes := 0; len(sums) > 0; bytes = 0 {
		n := 0
		for n < len(sums) && n < sharedAtOnce && (n == 0 || bytes+size(sums[n]) <= mostAtOnce) {
			bytes += size(sums[n])
			n++
		}
		batches, sums = append(batches, sums[:n]), sums[n:]
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	var next atomic.Int64
	for range 2 {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(batches) {
					return
				}
				if err := f(ctx, batches[i]); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// Fetch makes the snapshot of this name one that was shared, unless it is that already. Only the
// named folders may be in it, or any if folders is nil. Blocks that an earlier snapshot has are not fetched again. The error
// is ErrLost if the snapshot cannot be had any more.
func (s *Store) Fetch(ctx context.Context, name string, as Shared, from Blocks, folders []string) error {
	if s.HasShared(name, as) {
		return nil
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	m, err := fetchManifest(ctx, as, from)
	if err != nil {
		return err
	}
	for _, name := range m.Folders {
		if folders != nil && !slices.Contains(folders, name) {
			return fmt.Errorf("%w: it has the folder %q, which is none of a rollout's", ErrLost, name)
		}
	}
	f := &fetcher{packs: newPacker(s.Dir, s.lastBlocks()), sizes: map[string]int{}}
	var lack []string
	for _, b := range m.Blocks {
		sum := hex.EncodeToString(b.Sum)
		if f.sizes[sum] = b.Size; !f.packs.has(b) {
			lack = append(lack, sum)
		}
	}
	if err := errors.Join(f.all(ctx, lack, from), f.packs.finish()); err != nil {
		return err
	}
	for i := range m.Blocks {
		at, ok := f.packs.find(sumOf(m.Blocks[i]))
		if !ok {
			return fmt.Errorf("%w: block %x is missing", ErrLost, m.Blocks[i].Sum)
		}
		m.Blocks[i] = f.packs.blocks[at]
	}
	failpoint.Hit("snapshot.fetched")
	// The folders are not as in this snapshot, whatever they were left as.
	return errors.Join(s.touch(), s.write(name, m))
}

// fetchManifest fetches a manifest and checks it.
func fetchManifest(ctx context.Context, as Shared, from Blocks) (*manifest, error) {
	parts := map[string][]byte{}
	d, err := newDecompressor()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	err = twice(func() error {
		return from.Blocks(ctx, as.Manifest, func(b store.Block) error {
			content, err := d.shared(b, blockSize)
			parts[b.Sum] = bytes.Clone(content)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	var text []byte
	for _, sum := range as.Manifest {
		if parts[sum] == nil {
			return nil, fmt.Errorf("%w: block %s of the manifest is missing", ErrLost, sum)
		}
		text = append(text, parts[sum]...)
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil || m.Version != formatVersion || m.ID != as.ID {
		return nil, fmt.Errorf("%w: its manifest is not one that this evalrun reads", ErrLost)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return m, nil
}

// fetcher puts blocks into packs of this machine.
type fetcher struct {
	packs *packer
	sizes map[string]int // of the content of each block
}

func (f *fetcher) all(ctx context.Context, sums []string, from Blocks) error {
	size := func(sum string) int { return f.sizes[sum] }
	return eachBatch(ctx, sums, size, func(ctx context.Context, sums []string) error {
		d, err := newDecompressor()
		if err != nil {
			return err
		}
		defer d.Close()
		return twice(func() error {
			return from.Blocks(ctx, sums, func(b store.Block) error {
				content, err := d.shared(b, f.sizes[b.Sum])
				if err != nil {
					return err
				}
				sum, err := hex.DecodeString(b.Sum)
				if err == nil {
					_, err = f.packs.append(block{Sum: sum, Size: len(content)}, b.Data)
				}
				return err
			})
		})
	})
}

// twice does something again that came upon a damaged block: the way here may have damaged it.
func twice(fetch func() error) error {
	err := fetch()
	if errors.Is(err, ErrLost) {
		err = fetch()
	}
	return err
}

// shared returns the content of a block from elsewhere, of which only the sum is trusted. It is valid
// until the next call.
func (d *decompressor) shared(b store.Block, most int) ([]byte, error) {
	var err error
	if d.out, err = d.DecodeAll(b.Data, d.out[:0]); err != nil {
		return nil, fmt.Errorf("%w: block %s is damaged: %w", ErrLost, b.Sum, err)
	}
	if hash := sha256.Sum256(d.out); len(d.out) > most || hex.EncodeToString(hash[:]) != b.Sum {
		return nil, fmt.Errorf("%w: block %s is damaged: its content is not what its sum says", ErrLost, b.Sum)
	}
	return d.out, nil
}

// CheckBlock returns an error around ErrLost if a block is not what its sum says.
func CheckBlock(b store.Block) error {
	d, err := newDecompressor()
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.shared(b, blockSize)
	return err
}

// sumOf is the sum of a block.
func sumOf(b block) sum { return sum(b.Sum) }

// has reports whether a block is in a pack already.
func (p *packer) has(b block) bool {
	_, ok := p.find(sumOf(b))
	return ok
}
