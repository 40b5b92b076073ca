// Package program finds the program of an agent, says why it could not be started, and keeps the
// logs of its output. It knows nothing of what agents say.
package program

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// StartFault says why a command could not be started; nil if that is not the command's fault.
func StartFault(c sandbox.Command, err error) *fault.Fault {
	var lost *sandbox.LostError
	var known *fault.Fault // of what was to be made for the command
	switch {
	case errors.As(err, &lost):
		return fault.New(fault.Interrupted, "the agent could not be ended: "+err.Error())
	case errors.As(err, &known):
		return known
	}
	for _, ours := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, ours) {
			return nil
		}
	}
	message := fmt.Sprintf("cannot start %s in %s: %v", c.Path, c.Dir, err)
	var elsewhere *net.OpError
	switch {
	case errors.As(err, &elsewhere): // a daemon has gone
	case errors.Is(err, syscall.ENOENT): // the file itself was found
		message += "; the program that its first line names may be missing"
	case errors.Is(err, syscall.ENOEXEC):
		message += "; a script needs a first line such as #!/bin/sh"
	}
	return fault.New(fault.Start, message)
}

// SetupFault returns the fault of a process that was not started in its sandbox.
func SetupFault(ctx context.Context, err error) *fault.Fault {
	var failed *sandbox.SetupError
	switch {
	case ctx.Err() != nil:
		return agent.CauseFault(ctx)
	case errors.As(err, &failed) && failed.Stage == sandbox.StageMain:
		return fault.New(fault.Start, err.Error())
	case errors.As(err, &failed):
		message := err.Error()
		if text := CleanTail([]byte(failed.Output)); text != "" {
			message += "; it printed:\n" + text
		}
		return fault.New(fault.Setup, message)
	}
	return fault.New(fault.Setup, err.Error())
}

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
	return "", fault.Newf(fault.Start, "command not found: there is no program %q in PATH (folders: %d)%s%s",
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
