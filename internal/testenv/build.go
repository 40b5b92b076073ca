package testenv

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The programs of this module that tests start.
const (
	Evalrun     = "github.com/evalrun/evalrun/cmd/evalrun"
	Inside      = "github.com/evalrun/evalrun/cmd/evalrun-inside"
	ACPAgent    = "github.com/evalrun/evalrun/fixtures/acp-agent"
	JobsServer  = "github.com/evalrun/evalrun/fixtures/mcp/jobs"
	TasksServer = "github.com/evalrun/evalrun/fixtures/mcp/tasks"
)

// Build puts programs of this module into a folder, each under the name of its package. Linking
// takes most of the time, so they are built in the user's cache, where Go links only what has
// changed. They have no data for debuggers.
func Build(dir string, packages ...string) error {
	cache, err := programCache()
	if err != nil {
		return err
	}
	// Tests of other packages do the same at this moment. The lock ends with the file.
	lock, err := os.Create(filepath.Join(cache, "lock"))
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	for _, pkg := range packages {
		program := filepath.Join(cache, path.Base(pkg))
		cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
		}
		if err := copyProgram(program, filepath.Join(dir, path.Base(pkg))); err != nil {
			return err
		}
	}
	return nil
}

// programCache is the folder for the programs of this checkout, built with these flags.
func programCache() (string, error) {
	checkout, err := top()
	if err != nil {
		return "", err
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(checkout + "\x00" + os.Getenv("GOFLAGS")))
	dir := filepath.Join(user, "evalrun-tests", hex.EncodeToString(sum[:6]))
	return dir, os.MkdirAll(dir, 0o700)
}

// copyProgram copies a program without ever having the copy open itself. A process that is started
// meanwhile would keep it open, and a program that somebody can write to cannot be started.
func copyProgram(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	if out, err := exec.Command("cp", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("cp %s %s: %w\n%s", from, to, err, out)
	}
	return nil
}
