package rollout

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/image"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/tasks"
)

// images opens the images of this user.
var images = sync.OnceValues(func() (*image.Images, error) {
	dir, err := image.Dir()
	if err != nil {
		return nil, err
	}
	return image.Open(dir, image.Options{})
})

// fileImage is the file in a rollout's folder with the digest of the image in which the rollout
// began.
const fileImage = "image"

// rolloutImages gives the sandboxes of a rollout their images.
type rolloutImages struct{ held *held }

// open gives the sandboxes of a task its image. The agent's changes of the root belong to the image
// in which it was started, so a resumed rollout gets the same image.
func (r rolloutImages) open(ctx context.Context, s *sandboxSpec, begins bool) error {
	all, err := images()
	if err != nil {
		return fault.New(fault.Image, err.Error())
	}
	noted := filepath.Join(r.held.root(), fileImage)
	if begins {
		if s.image, err = r.get(ctx, all, s.task.Image()); err != nil {
			return err
		}
		err = errors.Join(r.keep(s.image), durable.WriteFile(noted, 0o600, func(w io.Writer) error {
			_, err := io.WriteString(w, s.image.Digest)
			return err
		}))
	} else {
		var digest []byte
		if digest, err = os.ReadFile(noted); err == nil {
			s.image, err = r.reopen(ctx, all, string(digest))
		}
		if err == nil && s.image == nil && r.held.isPortable() {
			err = r.getSame(ctx, all, s, string(digest))
		}
		if err == nil && s.image == nil {
			return fault.Newf(fault.Unresumable, "the image %s in which the rollout was begun is not there any more", digest)
		}
	}
	if err != nil {
		s.release()
		return err
	}
	s.folders.Image, s.folders.Volumes = r.layers(s.image), s.image.Config.VolumePaths()
	s.folders.Workdir = path.Clean(cmp.Or(s.task.Config.Environment.Workdir, s.image.Config.WorkingDir, "/"))
	return nil
}

// getSame gets the image of a rollout that another machine has begun, which must be the same here.
func (r rolloutImages) getSame(ctx context.Context, all *image.Images, s *sandboxSpec, digest string) (err error) {
	if s.image, err = r.get(ctx, all, s.task.Image()); err != nil {
		return err
	}
	if there := s.image.Digest; there != digest {
		return fault.Newf(fault.Unresumable,
			"the rollout was begun in the image %s, and here its task gives the image %s: take the image along, or go on where it is",
			digest, there)
	}
	return r.keep(s.image)
}

// spec returns the run's requirements of an image.
func (r rolloutImages) spec(i *tasks.Image) image.Spec {
	s := image.Of(i)
	s.For = r.held.claim.RunID
	return s
}

// get gets an image: on this machine, or in the daemon whose containers run the rollout.
func (r rolloutImages) get(ctx context.Context, all *image.Images, i *tasks.Image) (*image.Image, error) {
	if !r.remote() {
		return all.Get(ctx, r.spec(i), r.logStep)
	}
	daemon, err := openDaemon(ctx)
	if err != nil {
		return nil, err
	}
	return all.GetIn(ctx, daemon.Client, r.spec(i), r.logStep)
}

// getService gets the image of a service in the daemon.
func (r rolloutImages) getService(ctx context.Context, s image.Spec) (*image.Image, error) {
	all, err := images()
	if err != nil {
		return nil, err
	}
	daemon, err := openDaemon(ctx)
	if err != nil {
		return nil, err
	}
	s.For = r.held.claim.RunID
	return all.GetIn(ctx, daemon.Client, s, r.logStep)
}

// reopen returns an image that was got before; nil if it is gone.
func (r rolloutImages) reopen(ctx context.Context, all *image.Images, digest string) (*image.Image, error) {
	if !r.remote() {
		return all.Reopen(digest)
	}
	daemon, err := openDaemon(ctx)
	if err != nil {
		return nil, err
	}
	return image.ReopenIn(ctx, daemon.Client, digest)
}

func (r rolloutImages) remote() bool { return r.held.isolation() == sandbox.IsolationDocker }

// layers are the layers of an image on this machine. A daemon's image has none here.
func (r rolloutImages) layers(i *image.Image) []string {
	if r.remote() {
		return []string{}
	}
	return i.Lower
}

// logStep logs a step that takes time.
func (r rolloutImages) logStep(what string) {
	r.held.host.Logger.Info(what, "rollout", r.held.claim.RolloutID)
}

// keep protects an image from garbage collection for as long as something needs it that may exist
// without any process.
func (r rolloutImages) keep(i *image.Image) error {
	if r.remote() { // nothing of the daemon is collected
		return nil
	}
	return r.keepFor(i.Keep)
}

// keepServices is keep for the images of services, which are built where the services are started.
func (r rolloutImages) keepServices(names []string) error {
	if len(names) == 0 {
		return nil
	}
	all, err := images()
	if err != nil {
		return err
	}
	for _, name := range names {
		err = errors.Join(err, r.keepFor(func(path string) error { return all.KeepService(name, path) }))
	}
	return err
}

// keepFor calls keep with the paths for whose lifetime an image is kept.
func (r rolloutImages) keepFor(keep func(path string) error) error {
	err := keep(r.held.root())
	if r.held.run.Plan.KeepImages {
		err = errors.Join(err, keep(string(files.Of(r.held.host.Store).Run(r.held.claim.RunID))))
	}
	return err
}

// openSeparate opens the image for the separate sandbox of a verifier: the agent's image, unless
// the task names another.
func (r rolloutImages) openSeparate(ctx context.Context, s *sandboxSpec, stage *tasks.Stage) error {
	all, err := images()
	if err != nil {
		return fault.New(fault.Image, err.Error())
	}
	workdir := s.task.Config.Environment.Workdir
	if e := stage.Verifier.Environment; e != nil {
		workdir = e.Workdir
	}
	digest := s.image.Digest
	if want := s.task.VerifierImage(stage); want == nil {
		s.image, err = r.reopen(ctx, all, digest)
	} else {
		s.image, err = r.get(ctx, all, want)
		if err == nil {
			err = r.keep(s.image)
		}
	}
	switch {
	case err != nil:
		return err
	case s.image == nil:
		return fault.Newf(fault.Image, "the image %s is not there any more", digest)
	}
	s.folders.Image, s.folders.Volumes = r.layers(s.image), s.image.Config.VolumePaths()
	s.folders.Workdir = path.Clean(cmp.Or(workdir, s.image.Config.WorkingDir, "/"))
	return s.resolve()
}

// copyIn copies a file, or the content of a folder, to an inside path.
func (s *sandboxSpec) copyIn(source, inside string) error {
	if below, _ := s.folders.Locate(inside); below == "" && s.remote != nil {
		return s.remote.Put(source, inside, s.networked(tasks.Network{}))
	}
	below, rel, done, err := s.at(inside)
	if err != nil {
		return err
	}
	defer done()
	return workspace.CopyIn(source, below, rel)
}

// at returns the folder of this machine in which an inside path lies, and the path in it. They are
// valid until done is called. Over an image no process of the rollout may run meanwhile.
func (s *sandboxSpec) at(inside string) (below, rel string, done func(), err error) {
	below, rel = s.folders.Locate(inside)
	if below != "" || s.image == nil {
		return below, rel, func() {}, nil
	}
	if s.isolation == sandbox.IsolationDocker {
		return s.fetch(inside)
	}
	if _, err := s.folders.Mounts(); err != nil { // it makes the folders
		return "", "", nil, err
	}
	below, done, err = s.folders.Layers().Open(s.executable)
	return below, path.Clean("/" + inside)[1:], done, err
}

// keepAlive is the command with which an image's entrypoint is started, as by Harbor. The agent and
// the tests can use the services that the entrypoint starts beside it.
var keepAlive = []string{"sh", "-c", "sleep infinity"}

// entrypoint returns the service that an image starts; none if the image has no entrypoint.
func (s *sandboxSpec) entrypoint() []sandbox.SetupCommand {
	if s.image == nil || len(s.image.Config.Entrypoint) == 0 || s.image.Config.Entrypoint[0] == "" {
		return nil
	}
	return []sandbox.SetupCommand{{Args: slices.Concat(s.image.Config.Entrypoint, keepAlive), User: s.image.Config.User,
		MayFail: true}}
}

// imageInterval is the interval of a healthcheck whose image sets none, as by Docker.
const imageInterval = 30 * time.Second

// healthcheck returns the healthcheck of the image; nil if it has none.
func (s *sandboxSpec) healthcheck() *sandbox.Healthcheck {
	if s.image == nil || s.image.Config.Healthcheck == nil || len(s.image.Config.Healthcheck.Test) < 2 {
		return nil
	}
	h := s.image.Config.Healthcheck
	out := &sandbox.Healthcheck{Interval: cmp.Or(h.Interval, imageInterval), StartPeriod: h.StartPeriod,
		StartInterval: h.StartInterval, Retries: h.Retries}
	out.Timeout, out.User = h.Timeout, s.image.Config.User
	switch h.Test[0] {
	case "CMD":
		out.Args = h.Test[1:]
	case "CMD-SHELL":
		out.Command = strings.Join(h.Test[1:], " ")
	default:
		return nil
	}
	return out
}

// programEnviron returns the variables of a process other than the agent: the task's, and without
// an image those that every program of this machine gets.
func (s *sandboxSpec) programEnviron(cfg *sandbox.Config, home string) []string {
	if s.image != nil {
		return s.environ(cfg) // the process has the HOME of its user
	}
	return append([]string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "TERM=dumb", "HOME=" + home, "TMPDIR=/tmp",
		"PYTHONDONTWRITEBYTECODE=1"}, s.environ(cfg)...)
}

// has reports whether the image, with what was changed in it, has a path. No process of the rollout may run meanwhile.
func (s *sandboxSpec) has(inside string) (bool, error) {
	if below, _ := s.folders.Locate(inside); below == "" && s.remote != nil {
		return s.remote.Has(inside)
	}
	below, rel, done, err := s.at(inside)
	if err != nil {
		return false, err
	}
	defer done()
	root, err := os.OpenRoot(below)
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }() // only read
	_, err = root.Lstat(rel)
	return err == nil, nil // what a link leads out of is not there either
}
