package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/container/inside"
	"github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// The files in which Keep leaves what has changed in a container.
const (
	fileChanges = "changes.tar"  // what was added or changed
	fileRemoved = "removed.json" // a list of what was removed
)

// notKept are paths of a container that are the daemon's or evalrun's own.
var notKept = []string{"/proc", "/sys", "/dev", "/run/evalrun", "/.dockerenv", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}

// Keep leaves in a folder of this machine what the processes of the container have changed in its
// image and its volumes, except for the places of what was brought there. Another container of the
// image that has the folder as its [RemoteSpec].From begins with that. No process may run in the
// container, which waits for the next one then.
func (r *Remote) Keep(to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == "" {
		return nil // nothing has run in it, and what it began with is still there
	}
	ctx, cancel := withinTime()
	defer cancel()
	if err := r.daemon.Start(ctx, r.id); err != nil {
		return r.daemon.fault(fmt.Errorf("start the container to keep its files: %w", err))
	}
	err := r.keep(ctx, to)
	if errors.Is(err, docker.ErrTooLarge) {
		err = fault.Newf(fault.DiskLimit, "the container has changed more than %d MB, and is not kept", maxOut>>20)
	}
	return r.daemon.fault(err)
}

func (r *Remote) keep(ctx context.Context, to string) error {
	if err := errors.Join(r.equipped(), r.clear(ctx)); err != nil {
		return err
	}
	changes, err := r.daemon.Changes(ctx, r.id)
	if err != nil {
		return fmt.Errorf("ask what the container has changed: %w", err)
	}
	left := func(paths []string) []string {
		return slices.DeleteFunc(paths, func(p string) bool { return inside.IsBelow(p, notKept) })
	}
	removed := left(changes.Removed)
	// What was removed may have been made again: of such a folder a daemon may tell only that.
	what, err := json.Marshal(inside.Packing{Paths: slices.Concat(left(changes.Changed), removed), Trees: r.spec.Volumes, Not: notKept})
	if err != nil {
		return err
	}
	err = durable.WriteFile(filepath.Join(to, fileChanges), 0o600, func(w io.Writer) error {
		var said beginning
		status, err := r.daemon.Run(ctx, r.id, docker.Exec{Cmd: []string{sandbox.InsideExecutable, inside.Pack},
			User: "0:0", WorkingDir: "/"}, docker.Streams{In: bytes.NewReader(what), Out: &bounded{w, maxOut}, Err: &said})
		if err == nil && status != 0 {
			err = fmt.Errorf("exit status %d: %s", status, said.String())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("take out what the container has changed: %w", err)
	}
	return durable.WriteFile(filepath.Join(to, fileRemoved), 0o600, func(w io.Writer) error {
		return json.NewEncoder(w).Encode(removed)
	})
}

// bounded is a writer that takes so many bytes.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, docker.ErrTooLarge
	}
	return b.w.Write(p)
}

// restore puts into the new container what Keep has left of an earlier one.
func (r *Remote) restore(ctx context.Context) error {
	removed, err := os.ReadFile(filepath.Join(r.spec.From, fileRemoved))
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Workspace,
			"what the rollout has left was in a container of a Docker daemon, and was not kept when that was removed; run the rollout again")
	}
	if err == nil {
		err = r.daemon.Start(ctx, r.id)
	}
	if err == nil {
		err = r.equipped()
	}
	if err != nil {
		return err
	}
	var said beginning
	status, err := r.daemon.Run(ctx, r.id, docker.Exec{Cmd: []string{sandbox.InsideExecutable, inside.Remove},
		User: "0:0", WorkingDir: "/"}, docker.Streams{In: bytes.NewReader(removed), Out: &said, Err: &said})
	if err == nil && status != 0 {
		err = fmt.Errorf("exit status %d: %s", status, said.String())
	}
	if err != nil {
		return fmt.Errorf("remove from the container what an earlier one has removed: %w", err)
	}
	archive, err := os.Open(filepath.Join(r.spec.From, fileChanges))
	if err != nil {
		return err
	}
	defer func() { _ = archive.Close() }() // only read
	if err := r.daemon.Put(ctx, r.id, "/", archive); err != nil {
		return fmt.Errorf("put into the container what an earlier one has changed: %w", err)
	}
	return nil
}
