package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
)

// Find finds a program as a shell would in the agent's working directory and with the agent's PATH.
func Find(name, dir string, env []string) (string, *fault.Fault) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if why := NotExecutable(path); why != "" {
			return "", fault.Newf(fault.Start, "command not found: %q: looked for %s, which %s", name, path, why)
		}
		return path, nil
	}
	var search string
	for _, e := range env {
		if value, ok := strings.CutPrefix(e, "PATH="); ok {
			search = value
		}
	}
	found := ""
	for _, folder := range filepath.SplitList(search) {
		if folder == "" {
			continue
		}
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(dir, folder)
		}
		path := filepath.Join(folder, name)
		switch why := NotExecutable(path); why {
		case "":
			return path, nil
		case Missing:
		default:
			found = fmt.Sprintf("; %s %s", path, why)
		}
	}
	install := ""
	if command := agent.HowToInstall(name); command != "" {
		install = "; it comes with: " + command
	}
	return "", fault.Newf(fault.Start, "command not found: there is no program %q in the %d folders of PATH%s%s",
		name, len(filepath.SplitList(search)), found, install)
}

const Missing = "does not exist"

// NotExecutable says why a file cannot be started; it returns "" if it can.
func NotExecutable(path string) string {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return Missing
	case err != nil:
		return "cannot be looked at: " + err.Error()
	case info.IsDir():
		return "is a directory"
	case info.Mode()&0o111 == 0:
		return "is not executable"
	}
	return ""
}
