package tasks

import (
	"os"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// TestMain lets more tests run at once than there are cores: they wait more than they compute.
func TestMain(m *testing.M) {
	testenv.Parallel(8)
	os.Exit(m.Run())
}
