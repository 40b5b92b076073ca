package sqlite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
)

// children are what the test binary does when a test starts it again as a process of its own.
var children = map[string]func(dir string) error{}

func TestMain(m *testing.M) {
	if child, ok := children[os.Getenv("STORE_TEST_CHILD")]; ok {
		if err := child(os.Getenv("STORE_TEST_DIR")); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child prepares another process that works on a store.
func child(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_CHILD="+name, "STORE_TEST_DIR="+dir)
	return cmd
}

// asNobody makes a child one without root's rights; the binary is copied to where everybody may
// read it.
func asNobody(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	dir, err := os.MkdirTemp("", "store-test") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data, err := os.ReadFile(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path = filepath.Join(dir, "child")
	if err := os.WriteFile(cmd.Path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

func open(tb testing.TB, dir string) *sqlite.Store {
	tb.Helper()
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}
