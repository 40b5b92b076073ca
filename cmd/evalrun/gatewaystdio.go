package main

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/sandbox"
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

var errGatewayDone = errors.New("the gateway has no use for it any more")

func startStdio(s tasks.MCPServer, mark string, stderr io.Writer) (io.ReadWriteCloser, error) {
	path, err := program(s)
	if err != nil {
		return nil, err
	}
	env := os.Environ()
	for _, kv := range s.Env {
		env = append(env, kv.Name+"="+kv.Value)
	}
	// What leaves the group of its process is ended with the gateway: other processes of the server bear the same mark.
	p, err := sandbox.Start(sandbox.Command{
		RolloutID: mark, Path: path, Args: append([]string{s.Command}, s.Args...), Dir: s.Cwd, Env: env, Interactive: true, Shared: true, Stderr: stderr,
	})
	if err != nil {
		return nil, err
	}
	return &stdioServer{p.Stdout, p.Stdin, p}, nil
}

// SyscallConn implements syscall.Conn: messages are written to the pipe without waiting.
func (s *stdioServer) SyscallConn() (syscall.RawConn, error) {
	if pipe, ok := s.WriteCloser.(syscall.Conn); ok {
		return pipe.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Close implements io.Closer: the process is ended and reaped.
func (s *stdioServer) Close() error {
	err := s.WriteCloser.Close()
	s.process.End(errGatewayDone, stdioGrace)
	_, waitErr := s.process.Wait(context.Background())
	return errors.Join(err, waitErr)
}
