package gateway

import (
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// LabFile is a file that the lab has installed, and the lab's Node.js.
func LabFile(t *testing.T, path string) (node, file string) {
	t.Helper()
	return testenv.Node(t), testenv.LabFile(t, path)
}
