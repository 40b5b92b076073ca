package snapshot

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// BenchmarkUpperFolder takes and restores an upper folder of 200 MB with 5,000 files, and does the
// same with tar and zstd. Both are durable when they end.
func BenchmarkUpperFolder(b *testing.B) {
	dir := b.TempDir()
	root := filepath.Join(dir, "root")
	upper := filepath.Join(root, "upper")
	fill(b, upper)
	archive := filepath.Join(dir, "archive.tar.zst")
	shell := func(b *testing.B, line string, args ...string) {
		b.Helper()
		if out, err := exec.Command("sh", append([]string{"-c", line, "sh"}, args...)...).CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	tools := true
	for _, tool := range []string{"tar", "zstd"} {
		if _, err := exec.LookPath(tool); err != nil {
			tools = false
		}
	}
	run := func(name string, tool bool, before, f func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			if tool && !tools {
				b.Skip("needs tar and zstd")
			}
			for b.Loop() {
				b.StopTimer()
				before(b)
				b.StartTimer()
				f(b)
			}
		})
	}
	s := &Store{Dir: filepath.Join(dir, "snapshots"), Root: root, Overlay: OverlayUser}
	empty := func(b *testing.B) { must(b, RemoveAll(s.Dir)) }
	take := func(b *testing.B) {
		report, err := s.Take("1", "upper")
		must(b, err)
		b.ReportMetric(float64(report.Stored)/1e6, "stored-MB")
	}
	run("tar-suspend", true, func(b *testing.B) { must(b, os.RemoveAll(archive)) }, func(b *testing.B) {
		shell(b, `tar -C "$1" -S --xattrs -cf - upper | zstd -q -1 -T2 -o "$2" && sync "$2"`, root, archive)
		info, err := os.Stat(archive)
		must(b, err)
		b.ReportMetric(float64(info.Size())/1e6, "stored-MB")
	})
	run("snapshot-suspend", false, empty, take)
	round := byte(0)
	run("snapshot-suspend-again", false, func(b *testing.B) {
		round++
		for i := range 50 { // of 5,000
			must(b, os.WriteFile(filepath.Join(upper, fmt.Sprint("package-", i), "file-7"), []byte{round}, 0o600))
		}
	}, take)
	run("tar-restore", true, func(b *testing.B) { must(b, RemoveAll(upper)) }, func(b *testing.B) {
		shell(b, `zstd -q -dc "$2" | tar -C "$1" -S --xattrs -xf -`, root, archive)
	})
	take(b)
	run("snapshot-restore", false, func(b *testing.B) {
		must(b, RemoveAll(upper))
		must(b, s.touch())
	}, func(b *testing.B) { must(b, s.Restore("1")) })
}

// fill makes what a package manager leaves: many small files, and some large ones.
func fill(b *testing.B, dir string) {
	random := rand.New(rand.NewPCG(1, 1))
	content := make([]byte, 12<<20)
	write := func(path string, size int) {
		for i := 0; i < size; { // compresses to half, as programs do
			n := min(1+random.IntN(64), size-i)
			if i > n && random.IntN(2) == 0 {
				copy(content[i:i+n], content[random.IntN(i-n+1):])
			} else {
				for j := range n {
					content[i+j] = byte(random.Uint32())
				}
			}
			i += n
		}
		must(b, os.WriteFile(path, content[:size], 0o644))
	}
	for i := range 100 {
		sub := filepath.Join(dir, fmt.Sprint("package-", i))
		must(b, os.MkdirAll(sub, 0o755))
		for j := range 50 {
			write(filepath.Join(sub, fmt.Sprint("file-", j)), 1000+random.IntN(50_000))
		}
	}
	for i := range 6 {
		write(filepath.Join(dir, fmt.Sprint("program-", i)), 12<<20)
	}
	f, err := os.Create(filepath.Join(dir, "sparse"))
	must(b, err)
	must(b, f.Truncate(1<<30))
	must(b, f.Close())
}
