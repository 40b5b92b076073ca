package acpagent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// Launch has everything that is needed to start the process of an ACP agent.
type Launch struct {
	Entry   agent.Entry
	Options agent.Options
	// Sandbox is where the process runs. Start adds what the agent's program needs to its Config.
	Sandbox agent.Sandbox
	// BaseDir is the folder to which the entry's cwd is relative.
	BaseDir string
	// Marker marks the process and what it starts.
	Marker string
	// Env holds the variables that were passed to the run.
	Env []string
	// ModelURL and ModelKey are the agent's way to its model. Without a URL the agent has
	// credentials of its own.
	ModelURL, ModelKey string
	// Stderr receives the agent's log, and SetupLog the output of the sandbox's setup.
	Stderr, SetupLog io.Writer
	// Ended is the [sandbox.Command.Ended] of the process.
	Ended func()
	// Environ is the environment of the process, which Start sets.
	Environ []string
}

// Start writes the entry's files into the agent's home and starts its process, whose stdin and
// stdout are the caller's. The error is a [*fault.Fault] if the agent or its sandbox is at fault;
// [sandbox.Process.Ready] returns later failures in the sandbox.
func (l *Launch) Start(ctx context.Context) (*sandbox.Process, error) {
	fill := l.placeholders()
	env, f := l.environ(fill)
	if f != nil {
		return nil, f
	}
	l.Environ = env
	written, err := l.writeFiles(fill)
	if err != nil {
		// The agent has left its content.
		return nil, fault.New(fault.Setup, "the agent's home cannot be prepared: "+err.Error())
	}
	config := &l.Sandbox.Config
	if slices.Contains(config.Own, l.Sandbox.Home) { // the user's home, and what is in it from now on
		config.Own = append(slices.Clone(config.Own), written...)
	}
	search := env
	if config.HasImage() {
		search = []string{"PATH=" + hostPath()}
	}
	path, f := program.Find(l.Entry.Command[0], filepath.Join(l.BaseDir, l.Entry.Cwd), search)
	if f != nil {
		return nil, f
	}
	args, shown := l.Entry.Command, visible(path, l.Entry.Command[1:], search)
	if config.HasImage() {
		p, err := l.intoImage(ctx, path, shown)
		if err != nil {
			return nil, err
		}
		path, args = p.path, p.args
		l.Environ = append(l.Environ, p.env...)
		env = l.Environ
	} else {
		config.Visible = append(slices.Clone(config.Visible), shown...)
	}
	for _, dir := range SettingsOf(l.Entry).Visible {
		config.Visible = append(config.Visible, filepath.Clean(dir))
	}
	// A path that is not visible anyway need not be hidden, however many tasks there are.
	config.Hidden = slices.DeleteFunc(slices.Clone(config.Hidden), func(path string) bool { return !config.Shows(path) })
	command := sandbox.Command{
		Marker: l.Marker, Path: path, Args: args, Dir: l.Sandbox.Cwd, Env: env, Interactive: true, Stderr: l.Stderr,
		Grace: l.Options.Grace, Ended: l.Ended, Config: config, Setup: l.Sandbox.Setup, Executable: l.Sandbox.Executable,
	}
	if command.Setup != nil {
		setup := *command.Setup
		setup.Log = l.SetupLog
		command.Setup = &setup
	}
	process, err := sandbox.Start(command)
	if err == nil {
		return process, nil
	}
	if f := program.StartFault(command, err); f != nil {
		return nil, f
	}
	return nil, err
}

// hostPath returns the PATH in which an agent's program is looked up.
func hostPath() string { return cmp.Or(os.Getenv("PATH"), "/usr/local/bin:/usr/bin:/bin") }

// placeholders returns the values of {home}, {model}, {modelURL} and {modelKey}. Placeholders
// without a value are missing.
func (l *Launch) placeholders() map[string]string {
	fill := map[string]string{"{home}": l.Sandbox.Home}
	if l.ModelURL != "" {
		fill["{modelURL}"], fill["{modelKey}"] = l.ModelURL, l.ModelKey
		if l.Entry.Model.Name != "" {
			fill["{model}"] = l.Entry.Model.Name
		}
	}
	return fill
}

var placeholderNames = []string{"{home}", "{model}", "{modelURL}", "{modelKey}"}

// fillIn replaces the placeholders of a value. It returns false if the value names one that has no
// value.
func fillIn(value string, fill map[string]string) (string, bool) {
	for _, name := range placeholderNames {
		v, ok := fill[name]
		if !ok && strings.Contains(value, name) {
			return "", false
		}
		value = strings.ReplaceAll(value, name, v)
	}
	return value, true
}

// environ returns the whole environment of the agent: the variables that every program needs, those
// of the sandbox, those that were passed to the run, and the entry's own.
func (l *Launch) environ(fill map[string]string) ([]string, *fault.Fault) {
	home := l.Sandbox.Home
	env := []string{
		"PATH=" + hostPath(), "LANG=C.UTF-8", "TERM=dumb", "NO_COLOR=1", "HOME=" + home,
		"XDG_CONFIG_HOME=" + home + "/.config", "XDG_DATA_HOME=" + home + "/.local/share",
		"XDG_STATE_HOME=" + home + "/.local/state",
		"XDG_CACHE_HOME=" + home + "/.cache", "TMPDIR=" + home + "/tmp",
	}
	env = append(env, l.Sandbox.Env...)
	if l.Sandbox.Config.HasImage() {
		env = append(env, "TMPDIR=/tmp") // this /tmp is the rollout's own, and the tests see it
	}
	hidden := map[string]bool{}
	if l.ModelURL != "" { // the process that serves the model has the key; the agent must not have it
		for _, name := range agent.VariablesIn(l.Entry.Model.Key) {
			hidden[name] = true
		}
	}
	for _, e := range l.Env {
		if name, _, _ := strings.Cut(e, "="); !hidden[name] {
			env = append(env, e)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Entry.Env)) {
		value, unknown := l.Options.Expand(l.Entry.Env[name])
		if unknown != "" {
			return nil, fault.Newf(fault.Start, "the agent's environment variable %s needs ${%s}, which is not set",
				name, unknown)
		}
		if value, ok := fillIn(value, fill); ok {
			env = append(env, name+"="+value)
		}
	}
	return env, nil
}

// writeFiles writes the entry's files into the agent's home, for each process anew because the way
// to the model has another token, and makes the usual folders. It returns the inside paths of all of
// them, and of the folders on the way to them.
func (l *Launch) writeFiles(fill map[string]string) (written []string, err error) {
	host, ok := l.Sandbox.Config.HostPath(l.Sandbox.Home)
	if !ok {
		return nil, fmt.Errorf("the home %s is not in the agent's sandbox", l.Sandbox.Home)
	}
	root, err := os.OpenRoot(host) // the agent may have left links
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // the folder was only read
	note := func(name string) {
		for ; name != "."; name = filepath.Dir(name) {
			written = append(written, filepath.Join(l.Sandbox.Home, name))
		}
	}
	for _, dir := range []string{"tmp", ".config", ".cache", ".local/share", ".local/state"} {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		note(dir)
	}
	for _, name := range slices.Sorted(maps.Keys(SettingsOf(l.Entry).Files)) {
		content, ok := fillIn(SettingsOf(l.Entry).Files[name], fill)
		if !ok {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return nil, err
		}
		// The agent may have replaced the file by a link, or by a named pipe that would block us.
		if err := root.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err := root.WriteFile(name, []byte(content), 0o600); err != nil {
			return nil, err
		}
		note(filepath.Clean(name))
	}
	return written, nil
}
