package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// builder makes images. It is called under the lock of the folder, so never twice at once.
type builder interface {
	// build makes the image of a folder; dockerfile need not be in it. The output of the build goes to
	// log.
	build(ctx context.Context, contextDir, dockerfile string, log io.Writer) (id string, err error)
	// find returns the id of an image that this machine has under a name, empty if it has none.
	find(ctx context.Context, name string) (id string, err error)
	// pull fetches an image from its registry.
	pull(ctx context.Context, name string, log io.Writer) (id string, err error)
	// content returns the configuration of an image, unchanged so that it has the image's digest, and
	// its layers, the lowest first.
	content(ctx context.Context, id string) (config []byte, layers []layer, err error)
	// bases are the images on which a Dockerfile has just been built, as far as that is known.
	bases(dockerfile string) ([]base, error)
	// places are the folders of the storages in which changed looks for newer bases.
	places() []string
	// layersDir is a folder to which a build and a pull add their layers.
	layersDir() string
	// recover removes what a killed build has left.
	recover(ctx context.Context, log io.Writer) error
	// String is the program's name.
	String() string
}

// builders are the programs that can build, in the order in which they are looked for.
var builders = []string{"podman", "buildah", "docker"}

// errBuilding is the reason why an ordinary user's Dockerfiles are not built.
var errBuilding = fault.New(fault.NotRunnable,
	"images are built only by root, or with docker (EVALRUN_BUILDER=docker): what podman makes for another user belongs to ids that no overlay of that user takes; build as root, or let the task name an image that can be pulled")

// program finds the program that makes an image: that of the requested builder, or of the first
// that this machine has.
func (im *Images) program(s Spec) (string, error) {
	names := builders
	switch {
	case im.builder != "":
		names = []string{im.builder}
	case os.Geteuid() != 0:
		names = []string{"skopeo"}
	}
	built := s.Reference == "" || s.Rebuild
	if os.Geteuid() != 0 && (im.builder == "podman" || im.builder == "buildah" || im.builder == "" && built) {
		return "", errBuilding
	}
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", fault.Newf(fault.NotRunnable,
		"an image has to be made, and this machine has no %s; install one of them, such as Debian's package %s",
		strings.Join(names, ", "), names[0])
}

// newBuilder starts with the requested builder, or the first that this machine has.
func (im *Images) newBuilder(ctx context.Context, s Spec, lock *os.File, tmp string) (builder, error) {
	program, err := im.program(s)
	if err != nil {
		return nil, err
	}
	c := command{program, lock, tmp}
	switch path.Base(program) {
	case "skopeo":
		return &skopeo{command: c}, nil
	case "docker":
		d := &docker{c}
		if err := d.reachable(ctx); err != nil {
			return nil, fault.New(fault.NotRunnable, err.Error())
		}
		return d, nil
	}
	return newPodman(ctx, c, im.dir.path("storage"))
}

// Missing says what this machine lacks to provide an image; nil if the image is there or can be
// made. Whether a registry has a name is known only when it is asked.
func (im *Images) Missing(s Spec) error {
	if err := s.check(); err != nil {
		return err
	}
	key, err := s.key()
	if err != nil {
		return fault.Newf(fault.Image, "the build context of %s cannot be read: %v", s, err)
	}
	if i, err := im.there(key, time.Time{}); i != nil || err != nil {
		if i != nil {
			i.Release()
		}
		return err
	}
	_, err = im.program(s)
	return err
}

// command is a program of a builder. It keeps the lock under which it works open, so that nobody
// else gets it before the program and everything that it has started are gone.
type command struct {
	program string
	lock    *os.File
	// tmp is the folder for the program's temporary files.
	tmp string
}

// output runs the program and returns what it printed on stdout. Its stderr goes to log.
func (c command) output(ctx context.Context, log io.Writer, args ...string) (string, error) {
	var out strings.Builder
	err := c.run(ctx, &out, log, args...)
	return strings.TrimSpace(out.String()), err
}

// run runs the program.
func (c command) run(ctx context.Context, stdout, stderr io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = stdout, stderr, []*os.File{c.lock}
	cmd.Env = append(os.Environ(), "TMPDIR="+c.tmp)
	cmd.WaitDelay = 10 * time.Second // an escaped process may hold the output
	if err := alone(cmd); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w", path.Base(c.program), err)
	}
	return nil
}
