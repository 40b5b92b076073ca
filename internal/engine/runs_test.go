package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// The eval set's folder is looked for where it was relative to the store, then relative to the
// command's folder, then beside the store.
func TestFindBaseDir(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"project/sets", "project/.evalrun", "elsewhere/sets", "unpacked/.evalrun"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	plan := plans.Plan{BaseDir: "../sets", WorkDir: "sets"}
	for _, test := range []struct{ name, store, workDir, want string }{
		{"in its place", "project/.evalrun", "elsewhere", "project/sets"},
		{"the store was moved, the command runs in a checkout", "unpacked/.evalrun", "elsewhere", "elsewhere/sets"},
		{"the store was moved and nothing else is there", "unpacked/.evalrun", "unpacked", "unpacked"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, err := sqlite.Open(filepath.Join(dir, test.store), store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			r := New(Options{Store: s, WorkDir: filepath.Join(dir, test.workDir)})
			if got := r.runs.findBaseDir(plan); got != filepath.Join(dir, test.want) {
				t.Errorf("got %s, expected %s", got, filepath.Join(dir, test.want))
			}
		})
	}
}
