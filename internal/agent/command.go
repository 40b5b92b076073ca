package agent

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// command is the process of a segment, without its streams.
func (f *function) command(seg Segment) (sandbox.Command, *fault.Fault) {
	env, bad := f.environ(seg)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	dir := f.entry.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(seg.BaseDir, dir)
	}
	if info, err := os.Stat(dir); err != nil {
		return sandbox.Command{}, fault.Newf(fault.Start, "the agent's working directory: %v", err)
	} else if !info.IsDir() {
		return sandbox.Command{}, fault.Newf(fault.Start, "the agent's working directory: %s is not a directory", dir)
	}
	path, bad := findProgram(f.entry.Command[0], dir, env)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	return sandbox.Command{RolloutID: cmp.Or(seg.Marker, seg.RolloutID), Path: path, Args: f.entry.Command, Dir: dir, Env: env, Grace: f.opts.Grace, Ended: seg.Ended}, nil
}

// environ is evalrun's environment without evalrun's own variables, then the entry's, the segment's and those that tell
// the agent where its files are. The later entry counts.
func (f *function) environ(seg Segment) ([]string, *fault.Fault) {
	env := sandbox.Environ(os.Environ())
	for _, name := range slices.Sorted(maps.Keys(f.entry.Env)) {
		value, unknown := f.opts.expand(f.entry.Env[name])
		if unknown != "" {
			return nil, fault.Newf(fault.Start, "the agent's environment variable %s needs ${%s}, which is not set", name, unknown)
		}
		env = append(env, name+"="+value)
	}
	env = append(env, seg.Env...)
	env = append(env, EnvTraceFile+"="+filepath.Join(seg.Dir, FileTrace), EnvWorkspace+"="+seg.Workspace)
	if f.entry.Output == OutputFile {
		env = append(env, EnvOutputFile+"="+f.outputFile(seg))
	}
	return env, nil
}

// findProgram finds a program as a shell would in the agent's working directory and with the agent's PATH.
func findProgram(name, dir string, env []string) (string, *fault.Fault) {
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if why := notExecutable(path); why != "" {
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
		switch why := notExecutable(path); why {
		case "":
			return path, nil
		case whyMissing:
		default:
			found = fmt.Sprintf("; %s %s", path, why)
		}
	}
	return "", fault.Newf(fault.Start, "command not found: there is no program %q in the %d folders of PATH%s%s", name, len(filepath.SplitList(search)), found, howToInstall(name))
}

// packages are those of npm that bring the programs of the registry's agents.
var packages = map[string]string{
	"claude-agent-acp": "@agentclientprotocol/claude-agent-acp", "codex-acp": "@agentclientprotocol/codex-acp", "gemini": "@google/gemini-cli",
	"opencode": "opencode-ai", "qwen": "@qwen-code/qwen-code",
}

func howToInstall(program string) string {
	if name := packages[program]; name != "" {
		return "; it comes with: npm install -g " + name
	}
	return ""
}

const whyMissing = "does not exist"

// notExecutable says why a file cannot be started, nothing if it can.
func notExecutable(path string) string {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		return whyMissing
	case err != nil:
		return "cannot be looked at: " + err.Error()
	case info.IsDir():
		return "is a directory"
	case info.Mode()&0o111 == 0:
		return "is not executable"
	}
	return ""
}
