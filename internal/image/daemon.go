package image

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	daemon "github.com/evalrun/evalrun/internal/docker"
	"github.com/evalrun/evalrun/internal/fault"
)

// LabelImage is the label of the images that are built in a daemon. Its value is the key of the
// request.
const LabelImage = "dev.evalrun.image"

// GetIn is [Images.Get] for containers of a Docker daemon: the image is built or pulled there, and
// stays there. It has no layers on this machine. The daemon's own cache makes a second build quick,
// also if that is of another run; in one run nothing is asked twice.
func (im *Images) GetIn(ctx context.Context, c *daemon.Client, s Spec, progress func(string)) (*Image, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	key, err := s.key()
	if err != nil {
		return nil, fault.Newf(fault.Image, "the build context of %s cannot be read: %v", s, err)
	}
	select {
	case im.inDaemon <- struct{}{}: // one at a time
		defer func() { <-im.inDaemon }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	request := c.Host() + s.For + key
	if failed, ok := im.failed.Load(request); ok {
		return nil, failed.(error)
	}
	if id, ok := im.made.Load(request); ok {
		if i, err := inDaemon(ctx, c, s, id.(string)); err == nil {
			return i, nil
		}
	}
	if err := os.MkdirAll(im.dir.path("logs"), 0o700); err != nil {
		return nil, err
	}
	log, err := newBuildLog(im.dir.path("logs", key+".log"), progress)
	if err != nil {
		return nil, err
	}
	defer log.close()
	begun := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, s.timeout(), errTooLong)
	defer cancel()
	i, err := obtainIn(limited, c, s, key, log, progress)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		lost := isLost(err)
		err = failed(s, err, log, c.IfShort)
		if !lost {
			im.failed.Store(request, err)
		}
		return nil, err
	}
	im.made.Store(request, i.Digest)
	i.Made = time.Since(begun)
	return i, nil
}

// isLost reports whether the daemon has gone before it had said what is wrong, so that another try may
// succeed.
func isLost(err error) bool {
	var connection *net.OpError
	return errors.As(err, &connection) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// ReopenIn is [Images.Reopen] for an image of a daemon.
func ReopenIn(ctx context.Context, c *daemon.Client, digest string) (*Image, error) {
	i, err := inDaemon(ctx, c, Spec{Reference: digest}, digest)
	if daemon.IsMissing(err) {
		return nil, nil
	}
	return i, err
}

// inDaemon describes an image that the daemon has.
func inDaemon(ctx context.Context, c *daemon.Client, s Spec, name string) (*Image, error) {
	is, err := c.Image(ctx, name)
	if err != nil {
		return nil, err
	}
	if of := is.Os + "/" + is.Architecture; of != c.Platform {
		return nil, fault.Newf(fault.Image, "%s is an image for %s, and the Docker daemon at %s runs %s", s, of, c.Host(), c.Platform)
	}
	i := &Image{Digest: is.ID}
	if err := json.Unmarshal(is.Config, &i.Config); err != nil {
		return nil, fmt.Errorf("the configuration of the image %s: %w", name, err)
	}
	i.Config.complete()
	return i, nil
}

// obtainIn finds, pulls or builds an image in the daemon.
func obtainIn(ctx context.Context, c *daemon.Client, s Spec, key string, log io.Writer, progress func(string)) (*Image, error) {
	if s.Reference != "" {
		i, err := inDaemon(ctx, c, s, s.Reference)
		if daemon.IsMissing(err) {
			progress(fmt.Sprintf("%s is pulled by the Docker daemon", s.Reference))
			if err = c.Pull(ctx, s.Reference, log); err == nil {
				i, err = inDaemon(ctx, c, s, s.Reference)
			}
		}
		var bad *fault.Fault
		if err == nil || s.Context == "" || ctx.Err() != nil || errors.As(err, &bad) {
			return i, err
		}
		progress(fmt.Sprintf("%s is not to be had, so %s is built", s.Reference, s.dockerfile()))
	}
	progress(fmt.Sprintf("%s is built by the Docker daemon", s.dockerfile()))
	in, out := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := s.archive(out)
		out.CloseWithError(err)
		written <- err
	}()
	id, err := c.Build(ctx, in, daemon.Build{Dockerfile: contextDockerfile, Target: s.Target, Args: s.Args,
		Labels: map[string]string{LabelImage: key}}, log)
	_ = in.CloseWithError(io.ErrClosedPipe) // the daemon may have refused before it had read all
	if failed := <-written; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		err = cmp.Or(failed, err)
	}
	if err != nil {
		return nil, err
	}
	return inDaemon(ctx, c, s, id)
}

// contextDockerfile is the name of the Dockerfile in an archive of a context, since it need not be
// in the context.
const contextDockerfile = ".evalrun.Dockerfile"

// archive writes the build context, with the Dockerfile, as an archive. The daemon takes the two
// files away that the archive's own .dockerignore names. What the task's excludes is not in it.
func (s Spec) archive(w io.Writer) error {
	a := tar.NewWriter(w)
	dockerfile, err := os.ReadFile(s.dockerfile())
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{contextDockerfile: dockerfile,
		".dockerignore": []byte(contextDockerfile + "\n.dockerignore\n")} {
		err := a.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))})
		if err == nil {
			_, err = a.Write(text)
		}
		if err != nil {
			return err
		}
	}
	err = s.walk(func(path, rel string, info fs.FileInfo) error {
		if rel == ".dockerignore" {
			return nil
		}
		return daemon.AddToArchive(a, path, filepath.ToSlash(rel), info)
	})
	return errors.Join(err, a.Close())
}
