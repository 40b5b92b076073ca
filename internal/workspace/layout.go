package workspace

import (
	"path"
	"strings"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// The folders of an environment, below the rollout's own. What an agent needs when it is resumed is kept.
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
	FolderVerifier  = "verifier" // the home of the verifier, and its environment if it has one of its own
)

// Kept are the folders that survive a suspension and are restored when a segment is repeated.
var Kept = []string{FolderWorkspace, FolderHome, FolderLogs, FolderFiles, FolderTmp, FolderVarTmp, FolderRun}

// BindOf finds the bind that an inside path lies in, and the rest of the path. host is empty if it lies in none.
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
