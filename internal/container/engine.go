// Package container runs the processes of a rollout in a container of podman or of a Docker daemon. It makes
// the container, removes it when the process has ended, and finds the containers, networks, volumes
// and mounts that a crashed evalrun has left.
//
// A [Container] is a [sandbox.Space], so processes are started with package sandbox as everywhere
// else. Its root is that of the config, an overlay over the layers of an image. Files written in it
// lie where they do in isolation "image" too, and are kept in the same way. The package drives
// podman by its command line. It knows rollouts only by their markers. Of tasks it knows only
// the compose file that may stand beside their Dockerfile.
//
// A [Remote] is a [sandbox.Remote]: a container of a Docker daemon that shares nothing with this
// machine but its API.
package container

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Engine is podman.
type Engine struct {
	path string

	mu sync.Mutex
	// networked says whether the engine has its usual network. It is nil while nobody has asked.
	networked *bool
}

// findTimeout is how long podman may take to say that it is there.
const findTimeout = 20 * time.Second

// Find finds podman, and asks whether it works. The error says what to do.
func Find(ctx context.Context) (*Engine, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("isolation \"podman\" can be had as root only here: the root of an image is mounted for the container; choose isolation \"image\"")
	}
	path, err := exec.LookPath("podman")
	if err != nil {
		return nil, errors.New("isolation \"podman\" needs podman, which is not installed: apt-get install podman (or dnf, apk, pacman)")
	}
	e := &Engine{path: path}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	if _, err := e.run(ctx, "info", "--format", "{{.Store.GraphDriverName}}"); err != nil {
		return nil, fmt.Errorf("isolation \"podman\" does not work here: %w", err)
	}
	return e, nil
}

// run runs a command of the engine and returns its stdout, without the spaces around.
func (e *Engine) run(ctx context.Context, args ...string) (string, error) {
	return e.start(ctx, e.path, args[0], args...)
}

// start runs a program of the engine. When ctx is done the program is ended, and the error is the
// cause.
func (e *Engine) start(ctx context.Context, program, what string, args ...string) (string, error) {
	out, _, err := e.output(ctx, program, what, args...)
	return out, err
}

// output is like start, and also returns the complaints of a program that succeeds.
func (e *Engine) output(ctx context.Context, program, what string, args ...string) (_, complaints string, _ error) {
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.WaitDelay = time.Second // conmon may hold the pipes
	if err := cmd.Run(); ctx.Err() != nil {
		return "", "", context.Cause(ctx)
	} else if err != nil {
		return "", "", &engineError{command: what, said: strings.TrimSpace(said.String()), err: err}
	}
	return strings.TrimSpace(out.String()), said.String(), nil
}

// engineError is the message of podman whose command has failed.
type engineError struct {
	command, said string
	err           error
}

func (e *engineError) Error() string {
	if e.said == "" {
		return fmt.Sprintf("podman %s: %v", e.command, e.err)
	}
	return fmt.Sprintf("podman %s: %s", e.command, strings.TrimPrefix(lastLine(e.said), "Error: "))
}

func (e *engineError) Unwrap() error { return e.err }

// says reports whether an engine's error contains one of these words.
func says(err error, words ...string) bool {
	var failed *engineError
	if !errors.As(err, &failed) {
		return false
	}
	for _, w := range words {
		if strings.Contains(strings.ToLower(failed.said), w) {
			return true
		}
	}
	return false
}

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// The networks of a container.
const (
	// NetworkNone gives the container only a loopback of its own.
	NetworkNone = "none"
	// NetworkBridge is the engine's own network, which leads out of this machine.
	NetworkBridge = "bridge"
	// NetworkHost is the network of this machine.
	NetworkHost = "host"
)

// usualNetwork is the name that NetworkBridge has in podman.
const usualNetwork = "podman"

// Public is the network of a container that may reach everything. It is the engine's own, or that
// of this machine where the engine has none.
func (e *Engine) Public(ctx context.Context) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.networked == nil {
		_, err := e.run(ctx, "network", "inspect", usualNetwork)
		if err != nil && ctx.Err() != nil {
			return "", err
		}
		has := err == nil
		e.networked = &has
	}
	if *e.networked {
		return NetworkBridge, nil
	}
	return NetworkHost, nil
}
