package workspace

import (
	"cmp"
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
	FolderFiles     = "files" // the root of the file tree: everything that is in no other folder
	FolderTmp       = "tmp"
	FolderVarTmp    = "var-tmp"
	FolderRun       = "run"
	FolderTests     = "tests"    // the tests exist only while they run
	FolderSolution  = "solution" // the solution exists only for the oracle
	FolderVerifier  = "verifier" // the home of the verifier
	FolderUpper     = "upper"    // over an image: all changes of its root
	FolderVolumes   = "volumes"  // the volumes of a compose file and of its images
	folderWork      = "overlay"  // the kernel's own folder for the overlay
	folderMerged    = "root"     // the mount point of image and changes; no process outside the sandbox sees it
)

// Kept lists the folders that survive a suspension and are restored when a segment is repeated.
var Kept = []string{FolderWorkspace, FolderHome, FolderLogs, FolderFiles, FolderTmp, FolderVarTmp, FolderRun}

// KeptOverImage lists the folders that survive if the root is that of an image.
var KeptOverImage = []string{FolderWorkspace, FolderHome, FolderLogs, FolderUpper}

// OverImage lists the folders that are useful only on the machine on which an image is mounted.
var OverImage = []string{FolderUpper, folderWork, folderMerged}

// The places where published tasks expect things in a sandbox.
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
	// Link is a short name of Root, made by [LinkTo]; empty if there is none.
	Link string
	// Workdir is the working directory as the sandbox shows it.
	Workdir string
	// OwnTree says that the sandbox has a file tree of its own. Whatever the agent writes then
	// is kept for the verifier and the segments to come, except in the folders of the system.
	OwnTree bool
	// Image lists the folders of the layers of an image, the uppermost first. If it is not nil, the
	// sandbox has the image's root, and everything that is in no other folder of the rollout is
	// kept in FolderUpper.
	Image []string
	// Volumes are the paths of the image's volumes.
	Volumes []string
}

// Kept returns the folders that survive a suspension and are restored when a segment is repeated.
func (l Layout) Kept() []string {
	if l.Image != nil {
		return KeptOverImage
	}
	return Kept
}

// Layers returns the root of a sandbox over an image; nil if there is none.
func (l Layout) Layers() *sandbox.Root {
	if l.Image == nil {
		return nil
	}
	return &sandbox.Root{Lower: l.Image, Volumes: l.Volumes, Upper: l.Dir(FolderUpper), Work: l.Dir(folderWork), Merged: l.Dir(folderMerged)}
}

// Dir returns the path of a folder on this machine.
func (l Layout) Dir(name string) string { return filepath.Join(l.Root, name) }

// Short is like Dir, with the short name of the root if it has one. Homes need it: programs make
// Unix sockets in their homes and temporary folders, and the path of a socket has at most 108
// characters.
func (l Layout) Short(name string) string { return filepath.Join(cmp.Or(l.Link, l.Root), name) }

// Home returns the agent's home as the sandbox shows it.
func (l Layout) Home() string {
	if l.Workdir == InsideHome || l.Image != nil { // an image may have a user agent
		return otherHome
	}
	return InsideHome
}

// Create makes the folders that every rollout has.
func (l Layout) Create() error {
	for _, name := range append(slices.Clone(l.Kept()), FolderLogs+"/agent", FolderLogs+"/verifier",
		FolderLogs+"/artifacts") {
		if err := os.MkdirAll(l.Dir(name), 0o700); err != nil {
			return err
		}
	}
	if l.Image != nil {
		return os.Chmod(l.Dir(FolderUpper), 0o755) // this is the root of all users
	}
	if !l.OwnTree {
		return nil
	}
	below, rel := l.Locate("/root") // every system has /root
	return os.MkdirAll(filepath.Join(below, rel), 0o700)
}

// Locate returns where on this machine an inside path lies: a folder of the rollout, and the path
// in it. The folder is empty if the path is in the root of an image.
func (l Layout) Locate(inside string) (below, rel string) {
	known := l.shared()
	if l.Image == nil {
		known = append(known, sandbox.Bind{Host: l.Short(FolderHome), Inside: l.Home()},
			sandbox.Bind{Host: l.Dir(FolderFiles), Inside: "/"})
	}
	return BindOf(known, inside)
}

// Mounts returns all folders with their places in the sandbox, and makes those that are missing.
// The home is not writable; the caller makes it so for the agent. Over an image it is not among
// them.
func (l Layout) Mounts() (binds []sandbox.Bind, err error) {
	binds = l.shared()
	if l.Image == nil {
		binds = append(binds, sandbox.Bind{Host: l.Short(FolderHome), Inside: l.Home()})
	}
	for _, b := range binds {
		if err := os.MkdirAll(b.Host, 0o700); err != nil {
			return nil, err
		}
	}
	if l.Image != nil {
		return binds, l.prepareLayers()
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

// shared returns the folders to which every process of the sandbox may write. The working directory
// of a task may be at the place of another folder; then it has precedence.
func (l Layout) shared() []sandbox.Bind {
	folders := []struct{ inside, name string }{{l.Workdir, FolderWorkspace}, {InsideLogs, FolderLogs}}
	switch {
	case l.Image != nil:
		folders = folders[1:] // the working directory is one of the image
	case l.OwnTree:
		folders = append(folders, []struct{ inside, name string }{{"/", FolderFiles}, {"/tmp", FolderTmp},
			{"/var/tmp", FolderVarTmp}, {"/run", FolderRun}}...)
	}
	var binds []sandbox.Bind
	for _, f := range folders {
		if !slices.ContainsFunc(binds, func(b sandbox.Bind) bool { return b.Inside == f.inside }) {
			binds = append(binds, sandbox.Bind{Host: l.Dir(f.name), Inside: f.inside, Writable: true})
		}
	}
	return binds
}

// prepareLayers prepares the folders of an overlay for its mount, and makes the folders of the logs
// writable for every user of the image.
func (l Layout) prepareLayers() error {
	if err := Remove(l.Dir(folderWork)); err != nil {
		return err
	}
	for _, name := range []string{FolderUpper, folderWork, folderMerged} {
		if err := os.MkdirAll(l.Dir(name), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"", "agent", "verifier", "artifacts"} {
		dir := filepath.Join(l.Dir(FolderLogs), name)
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue // the agent may have removed it, or put a link in its place
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			return err
		}
	}
	return nil
}

// publicModes has the modes of the folders that every user of a system may enter or write to.
var publicModes = map[string]os.FileMode{"/": 0o755, "/tmp": 0o777 | os.ModeSticky, "/var/tmp": 0o777 | os.ModeSticky,
	"/run": 0o755}

// BindOf finds the bind that holds an inside path, and returns its folder on this machine and the
// rest of the path. host is empty if no bind holds it.
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
