package image_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestMain gives podman a configuration with which it works as root on a plain Debian, and a
// storage of the tests in the place of the user's.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "image-tests-")
	if err != nil {
		panic(err)
	}
	closePodman, err := testenv.OwnPodman(dir)
	if err != nil {
		panic(err)
	}
	testenv.Parallel(4)
	code := m.Run()
	closePodman()
	_ = os.RemoveAll(dir) // a temporary folder
	os.Exit(code)
}

var tool = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "image-tool-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // a temporary folder
	file := filepath.Join(dir, "tool")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "./testdata/tool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(file)
})

// withTool is a build context whose image has the program of testdata/tool.
func withTool(t *testing.T, dockerfile string) string {
	t.Helper()
	program, err := tool()
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, "Dockerfile", "FROM scratch\nCOPY --chmod=755 tool /tool\n"+dockerfile, "tool", string(program))
	return dir
}
