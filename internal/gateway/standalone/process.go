package standalone

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/tasks"
)

// stdioServer is a server that runs as a process of this machine.
type stdioServer struct {
	io.Reader
	io.WriteCloser
	process *sandbox.Process
}

// stdioGrace is how long a server may take to end by itself once its stdin is closed.
const stdioGrace = 2 * time.Second

var errDone = errors.New("the gateway has no use for it any more")

// inherited are the variables of the gateway that its servers get beside those that their
// configuration names. They are those that the SDKs of MCP pass on, and those for language, time
// zone and folders. Servers must see no others, which may be secrets.
var inherited = []string{"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TZ", "TMPDIR"}

// stdioEnv is the environment of a stdio server.
func stdioEnv(environ []string, named []tasks.KeyValue) (env []string) {
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if slices.Contains(inherited, name) || strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "XDG_") {
			env = append(env, kv)
		}
	}
	for _, kv := range named {
		env = append(env, kv.Name+"="+kv.Value)
	}
	return env
}

func startStdio(s tasks.MCPServer, mark string, stderr io.Writer) (io.ReadWriteCloser, error) {
	path, err := program(s)
	if err != nil {
		return nil, err
	}
	// Processes that leave the group of the server's process are ended with the gateway, because they
	// bear the same mark.
	p, err := sandbox.Start(sandbox.Command{
		Marker: mark, Path: path, Args: append([]string{s.Command}, s.Args...), Dir: s.Cwd,
		Env: stdioEnv(os.Environ(), s.Env), Interactive: true, Shared: true, Stderr: stderr,
	})
	if err != nil {
		return nil, err
	}
	return &stdioServer{p.Stdout, p.Stdin, p}, nil
}

// Close implements io.Closer. It ends and reaps the process.
func (s *stdioServer) Close() error {
	err := s.WriteCloser.Close()
	s.process.End(errDone, stdioGrace)
	_, waitErr := s.process.Wait(context.Background())
	return errors.Join(err, waitErr)
}
