package snapshot

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"iter"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// BenchmarkSuspension takes snapshots of a home of 200 MB with 5,000 files and restores them, by turns with
// tar and zstd: here, and over each place where other machines get them from. Each step is a process of its
// own, whose memory counts. Snapshots, and the archive, are durable when they end.
func BenchmarkSuspension(b *testing.B) {
	for _, tool := range []string{"tar", "zstd"} {
		if _, err := exec.LookPath(tool); err != nil {
			b.Skip(err)
		}
	}
	original := filepath.Join(b.TempDir(), "upper")
	fillHome(b, original, testenv.Size(5000, 200), int64(testenv.Size(200, 8))<<20)
	for _, place := range []string{"here", "file", "sqlite", "postgres"} {
		b.Run(place, func(b *testing.B) {
			var tar, untar, first, second, restored step
			for b.Loop() {
				dir := b.TempDir()
				a := helper{Store: &Store{Dir: filepath.Join(dir, "snapshots"), Root: filepath.Join(dir, "a"), Overlay: OverlayUser}}
				must(b, os.Mkdir(a.Store.Root, 0o700))
				must(b, exec.Command("cp", "-a", original, a.Store.Root).Run())
				archive := filepath.Join(dir, "archive.tar.zst")
				tar.add(b, exec.Command("sh", "-c", `tar -C "$1" -S --xattrs -cf - upper | zstd -q -1 -T2 -o "$2" && sync "$2"`,
					"sh", a.Store.Root, archive))
				untar.add(b, exec.Command("sh", "-c", `mkdir "$1" && zstd -q -dc "$2" | tar -C "$1" -S --xattrs -xf -`,
					"sh", filepath.Join(dir, "unpacked"), archive))

				there := a
				if place != "here" {
					a.In = placeFor(b, place, dir)
					there.In = a.In
					there.Store = &Store{Dir: filepath.Join(dir, "there"), Root: filepath.Join(dir, "b"), Overlay: OverlayUser}
					must(b, os.Mkdir(there.Store.Root, 0o700))
				}
				a.Take = "1"
				first.add(b, a.command(b))
				change(b, filepath.Join(a.Store.Root, "upper"))
				a.Take = "2"
				second.add(b, a.command(b))
				must(b, a.Store.touch())
				must(b, RemoveAll(filepath.Join(there.Store.Root, "upper")))
				there.Restore, there.As = "2", second.as
				restored.add(b, there.command(b))
				must(b, RemoveAll(dir))
			}
			b.ReportMetric(first.took/tar.took, "x-tar")
			b.ReportMetric(first.cpu/tar.cpu, "x-tar-cpu")
			b.ReportMetric(second.took/first.took, "second/first")
			b.ReportMetric(100*float64(second.stored)/float64(first.stored), "%-bytes")
			b.ReportMetric(restored.took/untar.took, "x-untar")
			b.ReportMetric(restored.cpu/untar.cpu, "x-untar-cpu")
			b.ReportMetric(max(first.peak, second.peak, restored.peak), "MB-peak")
			b.ReportMetric(tar.took/float64(b.N), "tar-s")
			b.ReportMetric(untar.took/float64(b.N), "untar-s")
		})
	}
}

// step is what a process of the benchmark took, over all its turns.
type step struct {
	took, cpu float64 // seconds
	peak      float64 // MB
	stored    int64
	as        Shared // of the last turn
}

func (s *step) add(b *testing.B, cmd *exec.Cmd) {
	b.Helper()
	cmd.Stderr = os.Stderr
	began := time.Now()
	out, err := cmd.Output()
	must(b, err)
	s.took += time.Since(began).Seconds()
	s.cpu += (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if len(out) > 0 {
		var said helped
		must(b, json.Unmarshal(out, &said))
		s.stored, s.as, s.peak = s.stored+said.Stored, said.As, max(s.peak, float64(said.Peak)/1e6)
	}
}

// placeFor is a place for blocks that is a test's own.
func placeFor(b *testing.B, name, dir string) *blockPlace {
	b.Helper()
	p := &blockPlace{Store: filepath.Join(dir, "store"), Files: filepath.Join(dir, "files")}
	switch name {
	case "file":
		p.Blobs = "file://" + filepath.Join(dir, "blobs")
		must(b, os.Mkdir(filepath.Join(dir, "blobs"), 0o700))
	case "postgres":
		u, err := url.Parse(testenv.PostgresURL(b))
		must(b, err)
		q := u.Query()
		q.Set("search_path", fmt.Sprintf("b%x", sha256.Sum256([]byte(dir)))[:20])
		u.RawQuery = q.Encode()
		p.Store = u.String()
	}
	s, err := p.open() // which makes it
	must(b, err)
	must(b, s.Close())
	return p
}

// fillHome makes a home: sources as a package manager leaves them, programs, and what is compressed already.
func fillHome(b *testing.B, dir string, files int, size int64) {
	b.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	must(b, err)
	root := strings.TrimSpace(string(goroot))
	put := func(from, to string) {
		data, err := os.ReadFile(from)
		must(b, err)
		data = data[:min(int64(len(data)), size)]
		must(b, os.MkdirAll(filepath.Dir(to), 0o755))
		must(b, os.WriteFile(to, data, 0o644))
		size -= int64(len(data))
	}
	for path, info := range regular(b, filepath.Join(root, "src")) {
		if info.Size() < 3000 || info.Size() > 300_000 || files == 0 {
			continue
		}
		files--
		rel, err := filepath.Rel(root, path)
		must(b, err)
		put(path, filepath.Join(dir, "project", "node_modules", rel))
	}
	for path := range regular(b, filepath.Join(root, "pkg", "tool")) {
		put(path, filepath.Join(dir, "bin", filepath.Base(path)))
	}
	random := rand.NewChaCha8([32]byte{1})
	must(b, os.MkdirAll(filepath.Join(dir, "project", ".git"), 0o755))
	for i := 0; size > 0; i++ {
		pack := make([]byte, min(size, 9<<20))
		_, _ = random.Read(pack) // never fails
		must(b, os.WriteFile(filepath.Join(dir, "project", ".git", fmt.Sprint("pack-", i)), pack, 0o444))
		size -= int64(len(pack))
	}
	f, err := os.Create(filepath.Join(dir, "sparse"))
	must(b, err)
	must(b, f.Truncate(1<<30))
	must(b, f.Close())
}

// change changes every hundredth file, and half a MB in the middle of a large one.
func change(b *testing.B, dir string) {
	b.Helper()
	var paths []string
	for path := range regular(b, filepath.Join(dir, "project", "node_modules")) {
		paths = append(paths, path)
	}
	for i := 0; i < len(paths); i += 100 {
		f, err := os.OpenFile(paths[i], os.O_WRONLY|os.O_APPEND, 0)
		must(b, err)
		_, err = f.WriteString("// changed\n")
		must(b, err)
		must(b, f.Close())
	}
	must(b, os.Remove(paths[1]))
	must(b, os.WriteFile(paths[2]+".new", []byte("new"), 0o600))
	large, err := os.OpenFile(filepath.Join(dir, "bin", "compile"), os.O_WRONLY, 0)
	must(b, err)
	other := make([]byte, 500_000)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(other) // never fails
	_, err = large.WriteAt(other, 1<<20)
	must(b, err)
	must(b, large.Close())
}

// regular gives the files below a folder, in order.
func regular(b *testing.B, dir string) iter.Seq2[string, fs.FileInfo] {
	return func(yield func(string, fs.FileInfo) bool) {
		b.Helper()
		must(b, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			info, err := e.Info()
			if err == nil && !yield(path, info) {
				err = fs.SkipAll
			}
			return err
		}))
	}
}
