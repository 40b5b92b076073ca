package snapshot

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/store"
)

// EachFile calls f with everything but folders that the snapshots in a folder have. See [Shared.EachFile].
func EachFile(dir string, f func(path string, content io.Reader) error) error {
	found, err := filepath.Glob(filepath.Join(dir, "*"+suffixManifest))
	if err != nil {
		return err
	}
	s, packs := &Store{Dir: dir}, &packReader{dir: dir}
	defer packs.close()
	d, err := newDecompressor()
	if err != nil {
		return err
	}
	defer d.Close()
	for _, file := range found {
		m, err := s.read(strings.TrimSuffix(filepath.Base(file), suffixManifest))
		if os.IsNotExist(err) {
			continue
		}
		if err == nil {
			err = m.eachFile(func(b *block) ([]byte, error) { return d.content(packs, b) }, f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// EachFile calls f with the path and the content of everything but folders that a shared snapshot has. The
// content of a link is its target, and attributes count as content.
func (as Shared) EachFile(ctx context.Context, from Blocks, f func(path string, content io.Reader) error) error {
	m, err := fetchManifest(ctx, as, from)
	if err != nil {
		return err
	}
	d, err := newDecompressor()
	if err != nil {
		return err
	}
	defer d.Close()
	return m.eachFile(func(b *block) (content []byte, err error) {
		sum := hex.EncodeToString(b.Sum)
		err = from.Blocks(ctx, []string{sum}, func(b store.Block) error {
			content, err = d.shared(b, blockSize)
			return err
		})
		if err == nil && content == nil {
			err = fmt.Errorf("%w: block %s is missing", ErrLost, sum)
		}
		return content, err
	}, f)
}

func (m *manifest) eachFile(get func(*block) ([]byte, error), f func(path string, content io.Reader) error) error {
	paths := make([]string, len(m.Entries))
	for i, e := range m.Entries {
		paths[i] = string(e.Name)
		if e.Parent >= 0 {
			paths[i] = paths[e.Parent] + "/" + paths[i]
		}
		if e.Type == typeFolder {
			continue
		}
		parts := []io.Reader{bytes.NewReader(e.Target)}
		for _, x := range e.Xattrs {
			parts = append(parts, bytes.NewReader(x.Value))
		}
		for _, p := range e.Data {
			parts = append(parts, &blockContent{get: func() ([]byte, error) { return get(&m.Blocks[p.Block]) }})
		}
		if err := f(paths[i], io.MultiReader(parts...)); err != nil {
			return err
		}
	}
	return nil
}

// blockContent reads a block, which is fetched when it is its turn.
type blockContent struct {
	get  func() ([]byte, error)
	from *bytes.Reader
}

// Read implements io.Reader.
func (c *blockContent) Read(p []byte) (int, error) {
	if c.from == nil {
		content, err := c.get()
		if err != nil {
			return 0, err
		}
		c.from = bytes.NewReader(content)
	}
	return c.from.Read(p)
}
