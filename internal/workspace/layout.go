package workspace

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// The folders of a rollout, below its root.
const (
	FolderWorkspace = "workspace"
	FolderHome      = "home"
	FolderLogs      = "logs"
	FolderFiles     = "files" // the root of the file tree, with what lies outside of the other folders
	FolderTmp       = "tmp"
	FolderVarTmp    = "var-tmp"
	FolderRun       = "run"
	FolderTests     = "tests"    // there only while they run
	FolderSolution  = "solution" // there only for the oracle
	FolderVerifier  = "verifier" // the home of the verifier, and its folders if it has one of its own
)

// Kept are the folders that survive a suspension and are restored when a segment is repeated.
var Kept = []string{FolderWorkspace, FolderHome, FolderLogs, FolderFiles, FolderTmp, FolderVarTmp, FolderRun}

// Where published tasks expect things in a sandbox.
const (
	InsideHome     = "/home/agent"
	InsideLogs     = "/logs"
	InsideTests    = "/tests"
	InsideSolution = "/solution"
	DefaultWorkdir = "/app"
	// otherHome is the home of an agent whose working directory is InsideHome.
	otherHome = "/home/evalrun"
)

// Layout says where the folders of a rollout appear in its sandbox.
type Layout struct {
	// Root is the folder on this machine.
	Root string
	// Workdir is the working directory as the sandbox shows it.
	Workdir string
	// OwnTree says that the sandbox has a file tree of its own. Whatever the agent writes then
	// is kept for the verifier and the segments to come, except in the folders of the system.
	OwnTree bool
}

// Dir is a folder on this machine.
func (l Layout) Dir(name string) string { return filepath.Join(l.Root, name) }

// Home is the agent's home as the sandbox shows it.
func (l Layout) Home() string {
	if l.Workdir == InsideHome {
		return otherHome
	}
	return InsideHome
}

// Create makes the folders that every rollout has.
func (l Layout) Create() error {
	for _, name := range append(slices.Clone(Kept), FolderLogs+"/agent", FolderLogs+"/verifier", FolderLogs+"/artifacts") {
		if err := os.MkdirAll(l.Dir(name), 0o700); err != nil {
			return err
		}
	}
	if !l.OwnTree {
		return nil
	}
	below, rel := l.Locate("/root") // which every system has
	return os.MkdirAll(filepath.Join(below, rel), 0o700)
}

// Locate is where on this machine an inside path lies: a folder of the rollout, and the path in it.
func (l Layout) Locate(inside string) (below, rel string) {
	known := append(l.shared(), sandbox.Bind{Host: l.Dir(FolderHome), Inside: l.Home()}, sandbox.Bind{Host: l.Dir(FolderFiles), Inside: "/"})
	return BindOf(known, inside)
}

// Mounts are all folders at their places, and makes those that an earlier version did not. Nobody
// may write to the home; who may, changes that.
func (l Layout) Mounts() (binds []sandbox.Bind, err error) {
	binds = append(l.shared(), sandbox.Bind{Host: l.Dir(FolderHome), Inside: l.Home()})
	for _, b := range binds {
		if err := os.MkdirAll(b.Host, 0o700); err != nil {
			return nil, err
		}
	}
	if !l.OwnTree {
		more, err := overlay(l.Dir(FolderFiles), "/")
		return append(binds, more...), err
	}
	for _, b := range binds {
		if mode, ok := publicModes[b.Inside]; ok {
			if err := os.Chmod(b.Host, mode); err != nil {
				return nil, err
			}
		}
	}
	root, _ := BindOf(binds, "/")
	more, err := besideTheSystem(root)
	return append(binds, more...), err
}

// shared are the folders that every process of the sandbox may write to. A task may work at any of
// their places, so the first of two that share one holds.
func (l Layout) shared() []sandbox.Bind {
	folders := []struct{ inside, name string }{{l.Workdir, FolderWorkspace}, {InsideLogs, FolderLogs}}
	if l.OwnTree {
		folders = append(folders, []struct{ inside, name string }{{"/", FolderFiles}, {"/tmp", FolderTmp}, {"/var/tmp", FolderVarTmp}, {"/run", FolderRun}}...)
	}
	var binds []sandbox.Bind
	for _, f := range folders {
		if !slices.ContainsFunc(binds, func(b sandbox.Bind) bool { return b.Inside == f.inside }) {
			binds = append(binds, sandbox.Bind{Host: l.Dir(f.name), Inside: f.inside, Writable: true})
		}
	}
	return binds
}

// publicModes are those of folders that every user of a system may enter or write to.
var publicModes = map[string]os.FileMode{"/": 0o755, "/tmp": 0o777 | os.ModeSticky, "/var/tmp": 0o777 | os.ModeSticky, "/run": 0o755}

// BindOf finds the bind that an inside path lies in, and the rest of the path. host is empty if it
// lies in none.
func BindOf(binds []sandbox.Bind, inside string) (host, rel string) {
	inside = path.Clean(inside)
	best := ""
	for _, b := range binds {
		below := b.Inside == "/" || inside == b.Inside || strings.HasPrefix(inside, b.Inside+"/")
		if below && len(b.Inside) > len(best) {
			best, host = b.Inside, b.Host
		}
	}
	return host, strings.TrimPrefix(strings.TrimPrefix(inside, best), "/")
}
