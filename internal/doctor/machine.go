package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/evalrun/evalrun/internal/sandbox"
)

// versionTimeout is how long a program may take to say its version. Many an agent starts Node first.
const versionTimeout = 20 * time.Second

// version asks a program for its version. One that is there and says nothing that can be read counts
// as there.
func version(program string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		path, err := exec.LookPath(program)
		if err != nil {
			return "", fmt.Errorf("there is no %s on PATH", program)
		}
		ctx, cancel := context.WithTimeout(ctx, versionTimeout)
		defer cancel()
		out := &firstLine{}
		// A marker of its own, because what bears it is ended with the process.
		exit, err := sandbox.Run(ctx, sandbox.Command{Marker: "doctor-" + uuid.NewString(), Path: path, Args: []string{program, "--version"}, Dir: os.TempDir(),
			Env: sandbox.Environ(os.Environ()), Stdout: out, Stderr: &firstLine{}})
		if err != nil {
			return "", err
		}
		if exit.Ended != nil || !exit.State.Success() || out.text() == "" {
			return path + ", which does not say its version", nil
		}
		return out.text() + ", " + path, nil
	}
}

// firstLine keeps the beginning of what is written to it.
type firstLine struct{ kept bytes.Buffer }

func (l *firstLine) Write(p []byte) (int, error) {
	const most = 200
	l.kept.Write(p[:min(len(p), max(0, most-l.kept.Len()))])
	return len(p), nil
}

func (l *firstLine) text() string {
	line, _, _ := strings.Cut(strings.TrimSpace(l.kept.String()), "\n")
	return strings.TrimSpace(line)
}

// folder is that of the store, or the nearest folder above it that is there.
func (o Options) folder() (string, error) {
	dir, err := filepath.Abs(o.Store)
	for err == nil {
		info, statErr := os.Stat(dir)
		if statErr == nil && info.IsDir() {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", statErr
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// littleSpace is the free space below which runs are in danger.
const littleSpace = 1 << 30

func (o Options) space(context.Context) (string, error) {
	dir, err := o.folder()
	if err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", fmt.Errorf("statfs %s: %w", dir, err)
	}
	free := fs.Bavail * uint64(fs.Bsize)
	found := fmt.Sprintf("%.1f GB in %s", float64(free)/1e9, dir)
	if free < littleSpace {
		return "", errors.New("only " + found)
	}
	return found, nil
}

// clockSlack is how far the clocks of a machine and of its file system may be apart.
const clockSlack = 5 * time.Second

// clock compares this machine's clock with the commit of the program, which cannot be in the future,
// and with the clock of the store's file system, which several machines may share.
func (o Options) clock(context.Context) (string, error) {
	now := time.Now()
	if built, err := time.Parse(time.RFC3339, o.Built); err == nil && now.Before(built) {
		return "", fmt.Errorf("it is %s here, which is before this program was made (%s)", now.UTC().Format(time.RFC3339), o.Built)
	}
	dir, err := o.folder()
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, ".evalrun-doctor-")
	if err != nil {
		// The store's own check says what is wrong with its folder.
		return now.UTC().Format(time.RFC3339) + "; the file system's clock is not known, as nothing can be written", nil
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return "", err
	}
	if apart := info.ModTime().Sub(now).Abs(); apart > clockSlack+time.Since(now) {
		return "", fmt.Errorf("it is %s here, and %s for the file system of %s", now.UTC().Format(time.RFC3339),
			info.ModTime().UTC().Format(time.RFC3339), dir)
	}
	return now.UTC().Format(time.RFC3339), nil
}
