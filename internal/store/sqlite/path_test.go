package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestStoreInAnyFolder(t *testing.T) {
	testenv.NeedSlow(t)
	for _, name := range []string{"with space", "a%20b", "100%", "q?mode=memory", "h#y", "ünï 码 🙂", "&_pragma=x", "semi;colon", "plus+", `back\slash`, `"quoted'`, "-dash", "file:x",
		strings.Repeat("long/", 45), "deep/er/than/there/is"} {
		dir := filepath.Join(t.TempDir(), name)
		s := open(t, dir)
		if _, err := s.CreateRun(t.Context(), benchPlan(1)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if info, err := os.Stat(filepath.Join(dir, "store.db")); err != nil || info.Size() == 0 {
			t.Errorf("%q: the store is not where it should be: %v", name, err)
		}
		// and another process finds it there
		if runs, err := open(t, dir).Runs(t.Context()); err != nil || len(runs) != 1 {
			t.Errorf("%q: %v, %v", name, runs, err)
		}
	}
}

func TestRelativeFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	s := open(t, ".evalrun")
	if !filepath.IsAbs(s.Dir()) {
		t.Fatal(s.Dir())
	}
}

func TestFolderWhosePathIsTooLong(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 120))
	s, err := sqlite.Open(dir, store.Options{})
	if err == nil {
		_ = s.Close()
		return // a system that can
	}
	if !strings.Contains(err.Error(), filepath.Join(dir, "store.db")) {
		t.Fatal(err)
	}
}

func init() {
	children["open"] = func(dir string) error {
		s, err := sqlite.Open(dir, store.Options{})
		if err != nil {
			return err
		}
		return errors.Join(fmt.Errorf("opened"), s.Close())
	}
}

// refusedTo checks that opening fails, as somebody without rights, with an error that names the
// file.
func refusedTo(t *testing.T, dir string) {
	t.Helper()
	cmd := child(t, "open", dir)
	if os.Getuid() == 0 {
		asNobody(t, cmd)
	}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), filepath.Join(dir, "store.db")) || !strings.Contains(string(out), "permission") {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestFolderThatCannotBeWritten(t *testing.T) {
	testenv.NeedSlow(t)
	base, err := os.MkdirTemp("", "store-test") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	_, _, data := filled(t)
	dir := filepath.Join(base, "store")
	for _, d := range []string{base, dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("without a store", func(t *testing.T) {
		chmod(t, dir, 0o555)
		refusedTo(t, dir)
	})
	for mode, opened := range map[os.FileMode]bool{0o444: true, 0o000: false} { // R25: what can be read is open for reading
		t.Run(fmt.Sprintf("with a store of mode %o", mode), func(t *testing.T) {
			file := filepath.Join(dir, "store.db")
			if err := os.WriteFile(file, data, 0o644); err != nil {
				t.Fatal(err)
			}
			chmod(t, file, mode)
			chmod(t, dir, 0o555)
			before := contents(t, dir)
			if cmd := child(t, "open", dir); !opened {
				refusedTo(t, dir)
			} else {
				if os.Getuid() == 0 {
					asNobody(t, cmd)
				}
				if out, err := cmd.CombinedOutput(); string(out) != "opened\n" {
					t.Fatalf("%v: %s", err, out)
				}
			}
			if after := contents(t, dir); after["store.db"] != before["store.db"] || len(after) != len(before) {
				t.Fatalf("%v became %v", before, after)
			}
		})
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(path, info.Mode().Perm()) })
}
