package testenv

import (
	"os"
	"path"
	"path/filepath"
	"sync"
	"testing"
)

// agentDir is the folder with the agent that BuiltAgent has built; empty if nobody has asked for
// it.
var agentDir string

var buildAgent = sync.OnceValues(func() (program string, err error) {
	if agentDir, err = os.MkdirTemp("", "acp-agent-"); err != nil {
		return "", err
	}
	return filepath.Join(agentDir, path.Base(ACPAgent)), Build(agentDir, ACPAgent)
})

// BuiltAgent is the path of the program [ACPAgent], which is built for the first test of a package
// that wants it. TestMain calls RemoveAgent at its end.
func BuiltAgent(t testing.TB) string {
	t.Helper()
	program, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// RemoveAgent removes the program that BuiltAgent has built.
func RemoveAgent() {
	if agentDir != "" {
		_ = os.RemoveAll(agentDir) // a temporary folder
	}
}
