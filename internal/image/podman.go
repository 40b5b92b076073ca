package image

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// podman builds with podman or buildah, which know the same options, in a storage of its own. So
// the leftovers of a killed build are known to be ours, and nobody who prunes the user's storage
// disturbs it. The images of the user's storage can be used all the same.
type podman struct {
	command
	options []string
	// building are further options of build.
	building []string
	storage
}

func newPodman(ctx context.Context, c command, dir string) (*podman, error) {
	var said strings.Builder
	format := "{{.Store.GraphDriverName}} {{.Host.CgroupManager}} {{.Store.GraphRoot}}"
	if filepath.Base(c.program) == "buildah" {
		format = "{{.store.GraphDriverName}} cgroupfs {{.store.GraphRoot}}"
	}
	info, err := c.output(ctx, &said, "info", "--format", format)
	words := strings.SplitN(info, " ", 3)
	if err != nil || len(words) < 3 {
		return nil, fmt.Errorf("%s info says %q: %w\n%s", filepath.Base(c.program), info, err, said.String())
	}
	p := &podman{command: c, storage: storage{dir: filepath.Join(dir, "root")}}
	p.options = []string{"--root", p.dir, "--runroot", runRoot(dir), "--storage-driver", "overlay"}
	if words[1] == "cgroupfs" { // systemd removes empty groups
		p.building = []string{"--cgroup-parent", "/" + controlGroup(dir)}
	}
	if driver, root := words[0], words[2]; driver == "overlay" && root != p.dir {
		p.also = []string{root}
		p.options = append(p.options, "--storage-opt", "overlay.imagestore="+root)
	}
	return p, os.MkdirAll(dir, 0o700)
}

// runRoot is a folder for files that the storage needs until the machine stops. podman wants its
// path to have no more than 50 bytes.
func runRoot(dir string) string { return "/run/" + controlGroup(dir) }

// controlGroup is the group of the processes of builds in a storage.
func controlGroup(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("evalrun-images-%x", sum[:8])
}

func (p *podman) String() string { return filepath.Base(p.program) }

// with are the arguments of podman for this storage.
func (p *podman) with(args ...string) []string { return slices.Concat(p.options, args) }

func (p *podman) build(ctx context.Context, contextDir, dockerfile string, log io.Writer) (string, error) {
	file := dockerfile + ".id"
	// Only this format keeps HEALTHCHECK and SHELL.
	args := slices.Concat(p.options, []string{"build", "--format", "docker", "--layers",
		"--iidfile", file, "--file", dockerfile}, p.building, []string{contextDir})
	if err := p.run(ctx, log, log, args...); err != nil {
		return "", err
	}
	id, err := os.ReadFile(file)
	return strings.TrimPrefix(strings.TrimSpace(string(id)), "sha256:"), err
}

func (p *podman) find(_ context.Context, name string) (string, error) { return p.storage.find(name) }

func (p *podman) pull(ctx context.Context, name string, log io.Writer) (string, error) {
	names := fullNames(name)
	if len(names) == 0 {
		return "", fmt.Errorf("%q cannot be the name of an image", name)
	}
	return p.output(ctx, log, p.with("pull", "--quiet", names[len(names)-1])...)
}

func (p *podman) content(_ context.Context, id string) ([]byte, []layer, error) {
	return p.storage.content(id)
}

func (p *podman) places() []string { return append([]string{p.dir}, p.also...) }

func (p *podman) layersDir() string { return filepath.Join(p.dir, "overlay") }

func (p *podman) recover(ctx context.Context, log io.Writer) error {
	ids, err := p.containers()
	if err != nil || len(ids) == 0 {
		return err
	}
	args := []string{"rm", "--force"}
	if p.String() == "buildah" {
		args = args[:1]
	}
	return p.run(ctx, log, log, p.with(append(args, ids...)...)...)
}
