// Package workspace knows the folders of agents. It says how a sandbox shows them, copies files in
// and out, makes snapshots and restores them. An agent may have left anything in these folders, so
// no function trusts what it finds there. The package knows nothing of agents, stores or tasks.
package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LinkTo makes a link with a short path to a folder, and returns the path. It is in /tmp, with a
// name made from a rollout's marker. A link that a killed process has left is replaced.
func LinkTo(dir, marker string) (string, error) {
	sum := sha256.Sum256([]byte(marker))
	path := filepath.Join("/tmp", "evalrun-"+hex.EncodeToString(sum[:5]))
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return "", fmt.Errorf("%s, which is to be a link to %s, is something else: remove it", path, dir)
	}
	// In /tmp nobody can remove files of other users.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	return path, os.Symlink(dir, path)
}

// StateDir returns where agents in a sandbox without isolation keep their folders:
// $XDG_STATE_HOME/evalrun, else ~/.local/state/evalrun.
func StateDir() string {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "evalrun")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "state", "evalrun")
}
