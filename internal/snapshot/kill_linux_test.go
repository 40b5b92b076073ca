//go:build failpoint

package snapshot

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A process that takes or restores a snapshot is killed at each of its steps. What it was to replace
// is as it was or as it was to be, and whole; and whoever comes next leaves nothing behind.
func TestKilledAtEveryStep(t *testing.T) {
	for _, step := range []string{"take", "restore"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, OverlayUser)
			must(t, os.Mkdir(filepath.Join(s.Root, "upper"), 0o755))
			g := &growth{t: t, rand: rand.New(rand.NewPCG(7, 8)), overlay: OverlayUser}
			g.grow(filepath.Join(s.Root, "upper"), 3)
			before := picture(t, s.Root, "upper")
			taken(t, s, "1", "upper")
			kills := 0
			for n := 1; ; n++ {
				must(t, s.Restore("1"))
				must(t, os.Mkdir(filepath.Join(s.Root, "upper", "grown"), 0o755))
				g.grow(filepath.Join(s.Root, "upper", "grown"), 1)
				after := picture(t, s.Root, "upper")
				h := helper{Store: s, Take: "2"}
				if step == "restore" {
					taken(t, s, "2", "upper")
					h = helper{Store: s, Restore: "2"}
				}
				cmd := h.command(t)
				cmd.Env = append(cmd.Env, fmt.Sprintf("EVALRUN_FAILPOINT=kill:any:%d", n))
				out, err := cmd.CombinedOutput()
				var exit *exec.ExitError
				killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
				if err != nil && !killed {
					t.Fatalf("%v: %s", err, out)
				}
				wanted := map[string][]string{"1": before}
				if s.Has("2") {
					wanted["2"] = after
				} else if step == "restore" {
					t.Fatalf("killed at step %d of a restoration, the snapshot is gone", n)
				}
				for name, want := range wanted {
					must(t, s.Restore(name))
					if diff := cmp.Diff(want, picture(t, s.Root, "upper")); diff != "" {
						t.Fatalf("killed at step %d, snapshot %s (-want +got):\n%s", n, name, diff)
					}
				}
				must(t, s.Prune("1"))
				noMoreThan(t, s)
				if !killed {
					break
				}
				kills++
			}
			if kills < 3 {
				t.Errorf("killed only %d times", kills)
			}
			t.Logf("killed %d times", kills)
		})
	}
}

// noMoreThan checks that nothing is left of what was broken off.
func noMoreThan(t *testing.T, s *Store) {
	t.Helper()
	m, err := s.read("1")
	must(t, err)
	packs := map[string]bool{}
	for _, b := range m.Blocks {
		packs[b.Pack+suffixPack] = true
	}
	entries, err := os.ReadDir(s.Dir)
	must(t, err)
	for _, e := range entries {
		if name := e.Name(); !packs[name] && name != "1"+suffixManifest && name != fileIndex && name != fileUntouched {
			t.Errorf("%s is left", name)
		}
	}
	roots, err := os.ReadDir(s.Root)
	must(t, err)
	for _, e := range roots {
		if e.Name() != "upper" && !strings.HasPrefix(e.Name(), ".upper") {
			t.Errorf("%s is left in the root", e.Name())
		}
	}
}
