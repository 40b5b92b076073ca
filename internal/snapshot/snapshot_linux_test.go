package snapshot

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/testenv"
)

// seed is that of a random test, from EVALRUN_SEED or the time.
func seed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("EVALRUN_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("EVALRUN_SEED=%d", seed)
	return seed
}

func newStore(t testing.TB, overlay string) *Store {
	dir := t.TempDir()
	s := &Store{Dir: filepath.Join(dir, "snapshots"), Root: filepath.Join(dir, "root"), Overlay: overlay}
	must(t, os.Mkdir(s.Root, 0o700))
	t.Cleanup(func() { must(t, RemoveAll(s.Root)) })
	return s
}

// taken takes a snapshot and does what a suspended rollout does to it: nothing is left that is known
// of the folders.
func taken(t testing.TB, s *Store, name string, folders ...string) *Report {
	t.Helper()
	report, err := s.Take(name, folders...)
	must(t, err)
	must(t, s.touch())
	return report
}

// Whatever a random tree holds, a snapshot brings back; so does one that was taken after changes,
// of which only the changes were stored, and the first one after that.
func TestRestoredTreesAreEqual(t *testing.T) {
	t.Parallel()
	overlay := OverlayUser
	if os.Geteuid() == 0 {
		overlay = OverlayTrusted
	}
	rounds := 4
	if os.Getenv("EVALRUN_LONG") != "" {
		rounds = 100
	}
	seed := seed(t)
	for i := range uint64(rounds) {
		g := &growth{t: t, rand: rand.New(rand.NewPCG(seed, i)), root: os.Geteuid() == 0, overlay: overlay}
		s := newStore(t, overlay)
		folders := []string{"upper", "home", "missing"}
		for _, name := range folders[:2] {
			must(t, os.Mkdir(filepath.Join(s.Root, name), 0o755))
			g.grow(filepath.Join(s.Root, name), 4)
		}
		before := picture(t, s.Root, folders[:2]...)
		taken(t, s, "1", folders...)
		if diff := cmp.Diff(before, picture(t, s.Root, folders[:2]...)); diff != "" {
			t.Fatalf("the snapshot has changed what it is of:\n%s", diff)
		}
		grown := filepath.Join(s.Root, "upper", "grown")
		must(t, os.Mkdir(grown, 0o700))
		g.grow(grown, 2)
		must(t, os.Mkdir(filepath.Join(s.Root, "missing"), 0o700))
		after := picture(t, s.Root, folders...)
		taken(t, s, "2", folders...)

		must(t, RemoveAll(s.Root))
		must(t, os.Mkdir(s.Root, 0o700))
		for _, want := range []struct {
			name    string
			picture []string
			folders []string
		}{{"2", after, folders}, {"1", before, folders[:2]}, {"2", after, folders}} {
			must(t, s.Restore(want.name))
			if diff := cmp.Diff(want.picture, picture(t, s.Root, want.folders...)); diff != "" {
				t.Fatalf("snapshot %s, restored (-want +got):\n%s", want.name, diff)
			}
		}
		must(t, s.Restore("1"))
		if left, err := os.ReadDir(s.Root); err != nil || len(left) != 2 {
			t.Errorf("%v is left in the root, %v", left, err)
		}
	}
}

// asNobody runs a test once more as an ordinary user, with that user's folder for temporary files.
func asNobody(t *testing.T, test string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this test runs as root and starts another as an ordinary user; the other runs by itself")
	}
	const nobody = 65534
	dir, err := os.MkdirTemp("", "nobody-")
	must(t, err)
	defer func() { must(t, RemoveAll(dir)) }()
	must(t, os.Chown(dir, nobody, nobody))
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+test+"$", "-test.v", fmt.Sprintf("-test.short=%v", testing.Short()))
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+test) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}

func TestRestoredTreesOfAnOrdinaryUserAreEqual(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	asNobody(t, "TestRestoredTreesAreEqual")
}

// What is unchanged is not read again. What was written at the same size, with its old time of
// modification put back, is.
func TestOnlyChangesAreStored(t *testing.T) {
	t.Parallel()
	s := newStore(t, "")
	dir := filepath.Join(s.Root, "workspace")
	must(t, os.Mkdir(dir, 0o700))
	random := rand.New(rand.NewPCG(1, 2))
	content := make([]byte, 3<<20)
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	large, small := filepath.Join(dir, "large"), filepath.Join(dir, "small")
	must(t, os.WriteFile(large, content, 0o600))
	must(t, os.WriteFile(small, []byte("first"), 0o600))
	info, err := os.Stat(small)
	must(t, err)
	settle(t, small)
	if first := taken(t, s, "1", "workspace"); first.Read != 3<<20+5 || first.Stored < 3<<20 {
		t.Errorf("the first snapshot: %+v", first)
	}
	must(t, os.WriteFile(small, []byte("again"), 0o600))
	must(t, os.Chtimes(small, info.ModTime(), info.ModTime()))
	if second := taken(t, s, "2", "workspace"); second.Read != 5 || second.Stored > 100 {
		t.Errorf("the second snapshot: %+v", second)
	}
	f, err := os.OpenFile(large, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("in the middle"), 1<<20+1000)
	must(t, err)
	must(t, f.Close())
	if third := taken(t, s, "3", "workspace"); third.Read > 3<<20+5 || third.Stored > 1<<20+1000 {
		t.Errorf("the third snapshot: %+v", third)
	}
	must(t, s.Restore("2"))
	if got, err := os.ReadFile(small); err != nil || string(got) != "again" {
		t.Errorf("%q, %v", got, err)
	}
	// After a restoration as well nothing that is unchanged need be read.
	settle(t, small)
	if fourth := taken(t, s, "4", "workspace"); fourth.Stored > 0 {
		t.Errorf("the snapshot after a restoration: %+v", fourth)
	}
}

// settle waits until a file that is changed now gets another time than this one has.
func settle(t *testing.T, path string) {
	var before, now unix.Stat_t
	must(t, unix.Stat(path, &before))
	probe := filepath.Join(t.TempDir(), "probe")
	for now.Ctim.Nano() < before.Ctim.Nano()+2*racy.Nanoseconds() {
		must(t, os.WriteFile(probe, nil, 0o600))
		must(t, unix.Stat(probe, &now))
	}
}

// A restoration does nothing where nobody can have changed anything, and something everywhere else.
func TestRestoreWhatMayHaveChanged(t *testing.T) {
	t.Parallel()
	s := newStore(t, "")
	file := filepath.Join(s.Root, "workspace", "file")
	must(t, os.Mkdir(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte("kept"), 0o600))
	_, err := s.Take("1", "workspace")
	must(t, err)
	inode := func() uint64 {
		var st unix.Stat_t
		must(t, unix.Stat(file, &st))
		return st.Ino
	}
	first := inode()
	must(t, s.Restore("1"))
	if inode() != first {
		t.Error("restored although it was untouched")
	}
	must(t, os.WriteFile(file, []byte("by an attempt"), 0o600))
	must(t, s.Restore("1"))
	if got, err := os.ReadFile(file); err != nil || string(got) != "kept" {
		t.Errorf("the second attempt finds %q, %v", got, err)
	}
}

// What is pruned is gone, and what is kept is whole.
func TestPrune(t *testing.T) {
	t.Parallel()
	s := newStore(t, "")
	dir := filepath.Join(s.Root, "workspace")
	must(t, os.Mkdir(dir, 0o700))
	random := rand.New(rand.NewPCG(3, 4))
	write := func(name string, size int) {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		must(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	write("stays", 1000)
	write("goes", 100_000)
	taken(t, s, "1", "workspace")
	must(t, os.Remove(filepath.Join(dir, "goes")))
	write("comes", 1000)
	want := picture(t, s.Root, "workspace")
	taken(t, s, "2", "workspace")
	must(t, os.WriteFile(filepath.Join(s.Dir, "torn.manifest.tmp"), nil, 0o600))
	must(t, s.Prune("2"))
	var size int64
	entries, err := os.ReadDir(s.Dir)
	must(t, err)
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		size += info.Size()
	}
	if s.Has("1") || !s.Has("2") || size > 10_000 {
		t.Errorf("after pruning %d bytes are left in %v", size, entries)
	}
	must(t, s.Restore("2"))
	if diff := cmp.Diff(want, picture(t, s.Root, "workspace")); diff != "" {
		t.Error(diff)
	}
}

// A folder may be deeper than a path can be long, or than files can be open.
func TestDeepFolders(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newStore(t, "")
	const depth = 1100 // more than 1024 files
	deep := func(f func(fd int)) {
		fd, err := unix.Open(filepath.Join(s.Root, "workspace"), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		must(t, err)
		for range depth {
			_ = unix.Mkdirat(fd, "deeper", 0o700) // it may be there
			next, err := unix.Openat(fd, "deeper", unix.O_RDONLY|unix.O_DIRECTORY, 0)
			must(t, err)
			unix.Close(fd)
			fd = next
		}
		f(fd)
		unix.Close(fd)
	}
	must(t, os.Mkdir(filepath.Join(s.Root, "workspace"), 0o700))
	deep(func(fd int) { must(t, unix.Symlinkat("here", fd, "link")) })
	taken(t, s, "1", "workspace")
	must(t, s.Restore("1"))
	deep(func(fd int) {
		if to, err := readlinkat(fd, "link"); err != nil || string(to) != "here" {
			t.Errorf("%q, %v", to, err)
		}
	})
}

func TestDeepFoldersOfAnOrdinaryUser(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	asNobody(t, "TestDeepFolders")
}

// Damage is noticed and not restored, and a snapshot of another version is refused.
func TestDamagedSnapshots(t *testing.T) {
	t.Parallel()
	s := newStore(t, "")
	must(t, os.Mkdir(filepath.Join(s.Root, "workspace"), 0o700))
	must(t, os.WriteFile(filepath.Join(s.Root, "workspace", "file"), []byte("content"), 0o600))
	taken(t, s, "1", "workspace")
	packs, err := filepath.Glob(filepath.Join(s.Dir, "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatal(packs, err)
	}
	whole, err := os.ReadFile(packs[0])
	must(t, err)
	for what, damage := range map[string][]byte{"cut": whole[:len(whole)-1], "empty": nil, "changed": append([]byte{whole[0] ^ 1}, whole[1:]...)} {
		must(t, os.WriteFile(packs[0], damage, 0o600))
		if err := s.Restore("1"); err == nil || !strings.Contains(err.Error(), "pack ") {
			t.Errorf("a pack that is %s: %v", what, err)
		}
	}
	must(t, os.WriteFile(packs[0], whole, 0o600))
	must(t, s.Restore("1"))
	for _, m := range []*manifest{
		{Version: formatVersion + 1},
		{Version: formatVersion, Entries: []*entry{{Type: typeLink, Parent: -1, Name: []byte("..")}}},
		{Version: formatVersion, Entries: []*entry{{Type: typeLink, Parent: -1, Name: []byte("a/b")}}},
		{Version: formatVersion, Entries: []*entry{{Type: typeLink, Parent: -1, Name: []byte("a")}, {Type: typeFile, Parent: 0, Name: []byte("b")}}},
		{Version: formatVersion, Entries: []*entry{{Type: typeFile, Parent: -1, Name: []byte("a"), Data: []piece{{0, 0}}}}},
	} {
		must(t, s.write("2", m))
		if err := s.Restore("2"); err == nil {
			t.Errorf("%+v was restored", m)
		}
	}
}
