package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/store"
)

// blocksInMemory are blocks as a store keeps them.
type blocksInMemory struct {
	mu   sync.Mutex
	data map[string][]byte
	// puts are the blocks that were stored, calls how often, and mostBytes the most at once.
	puts, calls, mostBytes int
	// damage, if not nil, changes what is read.
	damage func(sum string, data []byte) []byte
}

func newBlocks() *blocksInMemory { return &blocksInMemory{data: map[string][]byte{}} }

func (b *blocksInMemory) Missing(_ context.Context, sums []string) (out []string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sum := range sums {
		if b.data[sum] == nil {
			out = append(out, sum)
		}
	}
	return out, nil
}

func (b *blocksInMemory) PutBlocks(_ context.Context, blocks []store.Block) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	size := 0
	for _, block := range blocks {
		size += len(block.Data)
		b.data[block.Sum] = block.Data
		b.puts++
	}
	b.mostBytes = max(b.mostBytes, size)
	return nil
}

func (b *blocksInMemory) Blocks(_ context.Context, sums []string, f func(store.Block) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, sum := range sums {
		data := b.data[sum]
		if data != nil && b.damage != nil {
			data = b.damage(sum, bytes.Clone(data))
		}
		if data == nil {
			continue
		}
		if err := f(store.Block{Sum: sum, Data: data}); err != nil {
			return err
		}
	}
	return nil
}

func shared(t *testing.T, s *Store, name string, in Blocks) (Shared, []string) {
	t.Helper()
	as, needs, err := s.Share(t.Context(), name, in)
	must(t, err)
	return as, needs
}

// Vectors 36 and 39: what another machine restores is what was shared, and only what is new is stored
// again. A socket is left out.
func TestWhatIsSharedIsRestoredElsewhere(t *testing.T) {
	blocks := newBlocks()
	a, b := newStore(t, ""), newStore(t, "")
	a.WithoutSockets = true
	must(t, os.Mkdir(filepath.Join(a.Root, "work"), 0o750))
	g := &growth{t: t, rand: rand.New(rand.NewPCG(3, 4)), root: os.Geteuid() == 0}
	g.grow(filepath.Join(a.Root, "work"), 3)
	random := make([]byte, 3<<20+5)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	must(t, os.WriteFile(filepath.Join(a.Root, "work", "large"), random, 0o600))
	sparse := filepath.Join(a.Root, "work", "sparse")
	must(t, os.WriteFile(sparse, []byte("begin"), 0o600))
	must(t, os.Truncate(sparse, 1<<30))
	must(t, os.Link(sparse, filepath.Join(a.Root, "work", "also sparse")))
	before := picture(t, a.Root, "work")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(a.Root, "work", "s")})
	must(t, err)
	listener.SetUnlinkOnClose(false)
	must(t, listener.Close())

	report := taken(t, a, "2", "work", "missing")
	if len(report.LeftOut) != 1 || !strings.HasSuffix(report.LeftOut[0], "/s") {
		t.Errorf("left out: %q", report.LeftOut)
	}
	must(t, os.Remove(filepath.Join(a.Root, "work", "s")))
	as, needs := shared(t, a, "2", blocks)
	must(t, b.Fetch(t.Context(), "2", as, blocks, []string{"work", "missing"}))
	must(t, b.Restore("2"))
	same := func(want, got []string) {
		t.Helper()
		if diff := cmp.Diff(want[1:], got[1:]); diff != "" { // the first is the folder, whose time the socket has changed
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	same(before, picture(t, b.Root, "work"))
	var on unix.Stat_t
	must(t, unix.Stat(filepath.Join(b.Root, "work", "sparse"), &on))
	if on.Blocks > 64 {
		t.Errorf("the sparse file has %d blocks", on.Blocks)
	}

	// The other machine changes a little of it. Only that is stored, and only that is fetched.
	random[2<<20+7]++
	must(t, os.WriteFile(filepath.Join(b.Root, "work", "large"), random, 0o600))
	taken(t, b, "3", "work", "missing")
	before = picture(t, b.Root, "work")
	puts := blocks.puts
	as, more := shared(t, b, "3", blocks)
	if blocks.puts-puts > 2 { // the block and the manifest
		t.Errorf("%d blocks were stored again", blocks.puts-puts)
	}
	if len(more) < len(needs)-1 {
		t.Errorf("it needs %d blocks, and the one before it %d", len(more), len(needs))
	}
	read := 0
	blocks.damage = func(_ string, data []byte) []byte {
		read++
		return data
	}
	must(t, a.Fetch(t.Context(), "3", as, blocks, []string{"work", "missing"}))
	if read > 2 {
		t.Errorf("%d blocks were fetched again", read)
	}
	must(t, a.Restore("3"))
	same(before, picture(t, a.Root, "work"))

	// It is here already.
	must(t, a.Fetch(t.Context(), "3", as, nil, nil))
}

// The folders of a machine are as an attempt of its own has left them, which was never committed. A
// snapshot of that attempt has the same name as the one that was.
func TestAFetchedSnapshotReplacesOneOfItsName(t *testing.T) {
	blocks := newBlocks()
	a, b := newStore(t, ""), newStore(t, "")
	for s, text := range map[*Store]string{a: "committed", b: "given up"} {
		must(t, os.Mkdir(filepath.Join(s.Root, "work"), 0o700))
		must(t, os.WriteFile(filepath.Join(s.Root, "work", "file"), []byte(text), 0o600))
		_, err := s.Take("2", "work")
		must(t, err)
	}
	as, _ := shared(t, a, "2", blocks)
	must(t, b.Fetch(t.Context(), "2", as, blocks, []string{"work"}))
	must(t, b.Restore("2"))
	if text, err := os.ReadFile(filepath.Join(b.Root, "work", "file")); err != nil || string(text) != "committed" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// Many small files are stored together, but no more than a few megabytes.
func TestBlocksAreStoredTogether(t *testing.T) {
	s := newStore(t, "")
	must(t, os.Mkdir(filepath.Join(s.Root, "work"), 0o700))
	for i := range 100 {
		must(t, os.WriteFile(filepath.Join(s.Root, "work", strconv.Itoa(i)), []byte(strconv.Itoa(i)), 0o600))
	}
	taken(t, s, "2", "work")
	small := newBlocks()
	shared(t, s, "2", small)
	if small.puts != 101 || small.calls != (101+sharedAtOnce-1)/sharedAtOnce {
		t.Errorf("%d blocks in %d calls", small.puts, small.calls)
	}
	random := make([]byte, 10*blockSize)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	must(t, os.WriteFile(filepath.Join(s.Root, "work", "large"), random, 0o600))
	taken(t, s, "3", "work")
	large := newBlocks()
	shared(t, s, "3", large)
	if size := large.mostBytes; size > mostAtOnce || size < mostAtOnce/2 {
		t.Errorf("at most %d bytes at once", size)
	}
}

// Vectors 32, 33 and 34: a block that is missing or damaged is an error that names it, and nothing is
// written into the folders. What the way has damaged is fetched again.
func TestLostBlocks(t *testing.T) {
	blocks := newBlocks()
	a := newStore(t, "")
	must(t, os.Mkdir(filepath.Join(a.Root, "work"), 0o700))
	must(t, os.WriteFile(filepath.Join(a.Root, "work", "file"), bytes.Repeat([]byte("text "), 1000), 0o600))
	taken(t, a, "2", "work")
	as, needs := shared(t, a, "2", blocks)
	z, err := zstd.NewWriter(nil)
	must(t, err)
	bomb := z.EncodeAll(make([]byte, 64<<20), nil)
	other := z.EncodeAll([]byte("other"), nil)
	for name, damage := range map[string]func(data []byte) []byte{
		"missing": func([]byte) []byte { return nil },
		"flipped": func(data []byte) []byte { data[len(data)/2] ^= 1; return data },
		"cut":     func(data []byte) []byte { return data[:len(data)-1] },
		"longer":  func(data []byte) []byte { return append(data, data...) },
		"empty":   func([]byte) []byte { return []byte{} },
		"other":   func([]byte) []byte { return other },
		"bomb":    func([]byte) []byte { return bomb },
	} {
		for which, sum := range map[string]string{"content": needs[0], "manifest": as.Manifest[0]} {
			t.Run(name+"/"+which, func(t *testing.T) {
				b := newStore(t, "")
				must(t, os.Mkdir(filepath.Join(b.Root, "work"), 0o700))
				b2 := &blocksInMemory{data: blocks.data}
				reads := 0
				b2.damage = func(of string, data []byte) []byte {
					if of == sum {
						reads++
						return damage(data)
					}
					return data
				}
				err := b.Fetch(t.Context(), "2", as, b2, []string{"work"})
				if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), sum) || b.Has("2") {
					t.Errorf("got %v, and a snapshot: %v", err, b.Has("2"))
				}
				if name != "missing" && reads != 2 {
					t.Errorf("it was read %d times", reads)
				}
				if there := picture(t, b.Root, "work"); len(there) != 1 {
					t.Errorf("in the folder is %q", there)
				}
				b2.damage = func(of string, data []byte) []byte {
					if reads++; of == sum && reads%2 == 1 {
						return damage(data)
					}
					return data
				}
				if reads = 0; name == "missing" {
					b2.damage = nil
				}
				must(t, b.Fetch(t.Context(), "2", as, b2, []string{"work"}))
				must(t, b.Restore("2"))
			})
		}
	}
}

// Vector 35: a manifest that leads out of its folder is refused whole.
func TestHostileManifests(t *testing.T) {
	folder := &entry{Type: typeFolder, Parent: -1, Name: []byte("work"), Mode: 0o700}
	file := func(parent int, name string) *entry {
		return &entry{Type: typeFile, Parent: parent, Name: []byte(name), Mode: 0o600}
	}
	link := &entry{Type: typeLink, Parent: 0, Name: []byte("l"), Target: []byte("/etc")}
	for name, m := range map[string]manifest{
		"a name above":              {Entries: []*entry{folder, file(0, "../x")}},
		"two points":                {Entries: []*entry{folder, file(0, "..")}},
		"an absolute name":          {Entries: []*entry{folder, file(0, "/etc/x")}},
		"a name with a zero byte":   {Entries: []*entry{folder, file(0, "x\x00")}},
		"no name":                   {Entries: []*entry{folder, file(0, "")}},
		"a file below a link":       {Entries: []*entry{folder, link, file(1, "x")}},
		"a file below a file":       {Entries: []*entry{folder, file(0, "x"), file(1, "y")}},
		"a name twice":              {Entries: []*entry{folder, file(0, "x"), file(0, "x")}},
		"a link and a folder":       {Entries: []*entry{folder, link, {Type: typeFolder, Parent: 0, Name: []byte("l")}}},
		"a device":                  {Entries: []*entry{folder, {Type: "c", Parent: 0, Name: []byte("x")}}},
		"beside the folders":        {Entries: []*entry{folder, file(-1, "store.db")}},
		"another folder":            {Folders: []string{"work", "other"}, Entries: []*entry{folder}},
		"a folder above":            {Folders: []string{"../other"}},
		"the folder itself":         {Folders: []string{"."}},
		"a parent to come":          {Entries: []*entry{file(1, "x"), folder}},
		"a hard link to a folder":   {Entries: []*entry{folder, {Type: typeSame, Parent: 0, Name: []byte("x"), Same: 0}}},
		"a block that is none":      {Entries: []*entry{folder, {Type: typeFile, Parent: 0, Name: []byte("x"), Size: 5, Data: []piece{{0, 3}}}}},
		"a block beyond all limits": {Entries: []*entry{folder}, Blocks: []block{{Sum: make([]byte, 32), Size: 1 << 30}}},
		"a block without a sum":     {Entries: []*entry{folder}, Blocks: []block{{Sum: []byte("x"), Size: 1}}},
		"a later format":            {Version: 2, Entries: []*entry{folder}},
	} {
		t.Run(name, func(t *testing.T) {
			if m.ID = "id"; m.Version == 0 {
				m.Version = formatVersion
			}
			if m.Folders == nil {
				m.Folders = []string{"work"}
			}
			text, err := json.Marshal(m)
			must(t, err)
			z, err := zstd.NewWriter(nil)
			must(t, err)
			hash := sha256.Sum256(text)
			sum := hex.EncodeToString(hash[:])
			blocks := newBlocks()
			blocks.data[sum] = z.EncodeAll(text, nil)
			s := newStore(t, "")
			if err := s.Fetch(t.Context(), "2", Shared{"id", []string{sum}}, blocks, []string{"work"}); !errors.Is(err, ErrLost) {
				t.Errorf("got %v", err)
			}
			if s.Has("2") {
				t.Error("it is a snapshot")
			}
		})
	}
}
