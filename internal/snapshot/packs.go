package snapshot

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
)

const (
	// blockSize is how much of a file is compressed and compared at once.
	blockSize = 1 << 20
	// packSize is the size at which a new pack is begun.
	packSize = 16 << 20
)

type sum = [sha256.Size]byte

// packer puts blocks into packs, each once. Its methods may be called concurrently.
type packer struct {
	dir string
	// earlier holds the blocks of the snapshot before.
	earlier map[sum]block

	mu     sync.Mutex
	blocks []block
	known  map[sum]int
	pack   *os.File // that is being written
	name   string
	size   int64
	stored int64
	// syncing holds the complete packs that are being made durable. failed is the first error of
	// one.
	syncing sync.WaitGroup
	failed  error
	wrote   bool
}

func newPacker(dir string, earlier []block) *packer {
	p := &packer{dir: dir, earlier: make(map[sum]block, len(earlier)), known: map[sum]int{}}
	for _, b := range earlier {
		p.earlier[sum(b.Sum)] = b
	}
	return p
}

// add stores content unless it is stored already, and returns the number of its block.
func (p *packer) add(content []byte, c *compressor) (int, error) {
	hash := sha256.Sum256(content)
	if i, ok := p.find(hash); ok {
		return i, nil
	}
	c.out = c.EncodeAll(content, c.out[:0])
	return p.append(block{Sum: hash[:], Size: len(content)}, c.out)
}

// find returns the number of a block that is stored already.
func (p *packer) find(hash sum) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.known[hash]; ok {
		return i, true
	}
	b, ok := p.earlier[hash]
	if !ok {
		return 0, false
	}
	return p.note(b), true
}

// note adds a block that is in a pack.
func (p *packer) note(b block) int {
	p.blocks = append(p.blocks, b)
	p.known[sum(b.Sum)] = len(p.blocks) - 1
	return len(p.blocks) - 1
}

// append writes a block to the pack, unless another goroutine was faster.
func (p *packer) append(b block, compressed []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i, ok := p.known[sum(b.Sum)]; ok {
		return i, nil
	}
	if err := p.place(&b, compressed); err != nil {
		return 0, err
	}
	return p.note(b), nil
}

// place writes a block to the current pack, and records its place in the block.
func (p *packer) place(b *block, compressed []byte) error {
	if p.failed != nil {
		return p.failed
	}
	if p.pack == nil {
		p.name = uuid.NewString()[:13]
		var err error
		if p.pack, err = os.OpenFile(filepath.Join(p.dir, p.name+suffixPack), os.O_WRONLY|os.O_CREATE|os.O_EXCL,
			0o600); err != nil {
			return err
		}
		p.size, p.wrote = 0, true
	}
	if _, err := p.pack.Write(compressed); err != nil {
		p.failed = err
		return err
	}
	b.Pack, b.At, b.Stored = p.name, p.size, len(compressed)
	p.size += int64(len(compressed))
	p.stored += int64(len(compressed))
	failpoint.Hit("snapshot.stored")
	if p.size >= packSize {
		p.complete()
	}
	return nil
}

// complete makes the pack durable while others are written.
func (p *packer) complete() {
	pack := p.pack
	p.pack = nil
	p.syncing.Go(func() {
		if err := errors.Join(pack.Sync(), pack.Close()); err != nil {
			p.mu.Lock()
			p.failed = cmp.Or(p.failed, err)
			p.mu.Unlock()
		}
	})
}

// rewrite copies the blocks that are still needed out of packs of which less than half is needed,
// so that old packs do not stay for a few blocks. Every block of such a pack is in no other pack.
func (p *packer) rewrite() error {
	needed, all := map[string]int64{}, map[string]int64{}
	for _, b := range p.earlier {
		all[b.Pack] += int64(b.Stored)
	}
	for _, b := range p.blocks {
		needed[b.Pack] += int64(b.Stored)
	}
	packs := &packReader{dir: p.dir}
	defer packs.close()
	for i := range p.blocks {
		b := &p.blocks[i]
		if total, old := all[b.Pack]; !old || needed[b.Pack]*2 >= total {
			continue
		}
		compressed := make([]byte, b.Stored)
		if err := packs.readAt(b, compressed); err != nil {
			return err
		}
		p.mu.Lock()
		err := p.place(b, compressed)
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// finish makes everything durable.
func (p *packer) finish() error {
	if p.pack != nil {
		p.complete()
	}
	p.syncing.Wait()
	if p.failed != nil || !p.wrote {
		return p.failed
	}
	return durable.Sync(p.dir)
}

// compressor is the compressor of one worker.
type compressor struct {
	*zstd.Encoder
	out []byte
}

func newCompressor() (*compressor, error) {
	// The blocks have a checksum of their own.
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithWindowSize(blockSize), zstd.WithLowerEncoderMem(true))
	return &compressor{Encoder: z}, err
}

// packReader reads packs. Its methods may be called concurrently.
type packReader struct {
	dir  string
	mu   sync.Mutex
	open map[string]*os.File
}

func (r *packReader) file(name string) (*os.File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.open[name]; f != nil {
		return f, nil
	}
	f, err := os.Open(filepath.Join(r.dir, name+suffixPack))
	if err != nil {
		return nil, err
	}
	if r.open == nil {
		r.open = map[string]*os.File{}
	}
	r.open[name] = f
	return f, nil
}

// readAt reads a block as it is stored.
func (r *packReader) readAt(b *block, into []byte) error {
	f, err := r.file(b.Pack)
	if err != nil {
		return err
	}
	if _, err := f.ReadAt(into, b.At); err != nil {
		return fmt.Errorf("pack %s: %w", b.Pack, err)
	}
	return nil
}

func (r *packReader) close() {
	for _, f := range r.open {
		_ = f.Close() // only read
	}
}

// decompressor is the decompressor of one worker.
type decompressor struct {
	*zstd.Decoder
	in, out []byte
}

func newDecompressor() (*decompressor, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(blockSize+1))
	return &decompressor{Decoder: z}, err
}

// content returns the content of a block. It is valid until the next call.
func (d *decompressor) content(packs *packReader, b *block) ([]byte, error) {
	if cap(d.in) < b.Stored {
		d.in = make([]byte, b.Stored)
	}
	d.in = d.in[:b.Stored]
	if err := packs.readAt(b, d.in); err != nil {
		return nil, err
	}
	var err error
	if d.out, err = d.DecodeAll(d.in, d.out[:0]); err != nil {
		return nil, fmt.Errorf("pack %s: %w", b.Pack, err)
	}
	if hash := sha256.Sum256(d.out); !bytes.Equal(hash[:], b.Sum) {
		return nil, fmt.Errorf("pack %s is damaged: a block is not what its sum says", b.Pack)
	}
	return d.out, nil
}
