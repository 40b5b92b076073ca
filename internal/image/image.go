// Package image makes the root file systems in which tasks run. It builds Dockerfiles and pulls
// images with any builder that the machine has. It keeps them unpacked in a folder of the user, so
// that each is made once and a second run needs neither network nor builder. It knows images,
// builders, locks and disks. It must not know tasks, rollouts or sandboxes.
package image

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// Spec says which image is wanted: one that is built from a folder, or one that has a name.
type Spec struct {
	// Context is the folder that a build sees. Hidden are folders that it never sees, although they
	// may be in it.
	Context string
	Hidden  []string
	// Dockerfile is the file that is built; empty for the Dockerfile in Context.
	Dockerfile string
	// Args and Target are the arguments of the build, and the stage that it ends with. [Images.GetIn] alone
	// knows them.
	Args   map[string]string
	Target string
	// Reference is the name of an image that exists already, on this machine or in a registry. It
	// takes precedence over Context, which is built only if nothing has the name.
	Reference string
	// Platform is a platform such as linux/amd64; empty for that of this machine.
	Platform string
	// Timeout is how long the build or the pull may take; 0 for ten minutes.
	Timeout time.Duration
	// MaxBytes limits the size of the files that a build adds to its base, or a pull brings; 0 for as
	// much as the disk has.
	MaxBytes int64
	// Rebuild builds Context even if there is an image.
	Rebuild bool
	// For is the run that the image is for, if there is one. If an image could not be made for the
	// run, this process does not try again for it.
	For string
}

// String names the image for people.
func (s Spec) String() string {
	if s.Context == "" {
		return s.Reference
	}
	return s.dockerfile()
}

func (s Spec) dockerfile() string {
	if s.Dockerfile != "" {
		return s.Dockerfile
	}
	return filepath.Join(s.Context, "Dockerfile")
}

func (s Spec) timeout() time.Duration {
	if s.Timeout > 0 {
		return s.Timeout
	}
	return 10 * time.Minute
}

// check finds errors that make the image impossible on this machine, with any builder.
func (s Spec) check() error {
	if s.Context == "" && s.Reference == "" {
		return fault.New(fault.Image, "neither a Dockerfile nor the name of an image is given")
	}
	if s.Context == "" && strings.HasPrefix(s.Reference, "-") {
		return fault.Newf(fault.Image, "%q cannot be the name of an image", s.Reference)
	}
	if here := platform(); s.Platform != "" && s.Platform != here {
		return fault.Newf(fault.Image, "%s is to be an image for %s, and this machine runs %s", s, s.Platform, here)
	}
	return nil
}

func platform() string { return "linux/" + runtime.GOARCH }

// Image is an image that exists. It stays there until Release, also when another process collects
// unused images.
type Image struct {
	// Digest is the id of the image: sha256: and the digest of its configuration, which names its
	// layers. The same digest is the same root, to the byte.
	Digest string
	// Lower are the folders of its layers, the uppermost first, as lowerdir= of an overlay has them.
	// None of their paths has a colon. They are shared by all users of the image, so nobody writes to
	// them.
	Lower  []string
	Config Config
	// Made is how long it took to make the image; 0 if it was there.
	Made time.Duration
	use  *os.File
	dir  directory
}

// Release releases the image. It may be called again.
func (i *Image) Release() {
	if i.use != nil {
		_ = i.use.Close() // this ends the lock, whatever it returns
		i.use = nil
	}
}

// Config is what an image says about the processes that run in it.
type Config struct {
	User       string `json:"User,omitempty"`
	WorkingDir string `json:"WorkingDir,omitempty"`
	// Env are variables as NAME=value. PATH is always among them.
	Env         []string     `json:"Env,omitempty"`
	Entrypoint  []string     `json:"Entrypoint,omitempty"`
	Cmd         []string     `json:"Cmd,omitempty"`
	Shell       []string     `json:"Shell,omitempty"`
	Healthcheck *Healthcheck `json:"Healthcheck,omitempty"`
	// Volumes has the paths of the image's volumes as its keys.
	Volumes map[string]struct{} `json:"Volumes,omitempty"`
}

// VolumePaths are the absolute paths of the image's volumes, each once. Something is there in every container,
// an empty folder at least.
func (c *Config) VolumePaths() (out []string) {
	for at := range c.Volumes {
		out = append(out, path.Join("/", at))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Healthcheck is how an image says that its process is ready. Test begins with NONE, CMD or
// CMD-SHELL. A duration of 0 was not given.
type Healthcheck struct {
	Test          []string
	Interval      time.Duration
	Timeout       time.Duration
	StartPeriod   time.Duration
	StartInterval time.Duration
	Retries       int
}

// defaultPath is the PATH that Docker sets if an image has none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (c *Config) complete() {
	for _, kv := range c.Env {
		if strings.HasPrefix(kv, "PATH=") {
			return
		}
	}
	c.Env = append(c.Env, defaultPath)
}

// Images are the images of one folder. All methods can be called concurrently, and by many
// processes.
type Images struct {
	dir     directory
	builder string
	failed  sync.Map // error by Spec.For and key
	// made has the ids of the images that a daemon has, by request. inDaemon is held by who asks one.
	made     sync.Map
	inDaemon chan struct{}
}

// Options are settings of [Open].
type Options struct {
	// Builder is podman, buildah or docker. If it is empty, EVALRUN_BUILDER counts, and then the first
	// that the machine has.
	Builder string
}

// Dir is the default folder of images: $EVALRUN_IMAGES, else evalrun/images in the user's cache
// folder.
func Dir() (string, error) {
	if dir := os.Getenv("EVALRUN_IMAGES"); dir != "" {
		return filepath.Abs(dir)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for images: %w; set EVALRUN_IMAGES", err)
	}
	return filepath.Join(cache, "evalrun", "images"), nil
}

// Open opens a folder of images. The folder is made with the first image.
func Open(dir string, o Options) (*Images, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(dir, ":,\\") {
		return nil, fmt.Errorf("%s cannot be the folder of images, because no overlay takes a path with a colon, a comma or a backslash",
			dir)
	}
	if b := cmp.Or(o.Builder, os.Getenv("EVALRUN_BUILDER")); b != "" && !slices.Contains(builders, b) {
		return nil, fmt.Errorf("the builder %q is not known: use one of %s", b, strings.Join(builders, ", "))
	}
	im := &Images{dir: directory(dir), builder: cmp.Or(o.Builder, os.Getenv("EVALRUN_BUILDER")),
		inDaemon: make(chan struct{}, 1)}
	return im, nil
}
