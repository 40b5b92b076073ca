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

// podman builds with podman, in a storage of its own: what a build leaves when it is killed is
// known to be ours, and nobody who prunes the user's storage disturbs it. The images of the user's
// storage can be used all the same.
type podman struct {
	command
	options []string
	storage
}

func newPodman(ctx context.Context, c command, dir string) (*podman, error) {
	var said strings.Builder
	users, err := c.output(ctx, &said, "info", "--format", "{{.Store.GraphDriverName}} {{.Store.GraphRoot}}")
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, said.String())
	}
	p := &podman{command: c, storage: storage{dir: filepath.Join(dir, "root")}}
	p.options = []string{"--root", p.dir, "--runroot", runRoot(dir), "--storage-driver", "overlay"}
	if driver, root, _ := strings.Cut(users, " "); driver == "overlay" && root != p.dir {
		p.also = []string{root}
		p.options = append(p.options, "--storage-opt", "overlay.imagestore="+root)
	}
	return p, os.MkdirAll(dir, 0o700)
}

// runRoot is a folder for what the storage needs until the machine stops. podman wants its path to
// have no more than 50 bytes.
func runRoot(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return fmt.Sprintf("/run/evalrun-images/%x", sum[:8])
}

func (p *podman) String() string { return "podman" }

// with are the arguments of podman for this storage.
func (p *podman) with(args ...string) []string { return slices.Concat(p.options, args) }

func (p *podman) build(ctx context.Context, contextDir, dockerfile string, log io.Writer) (string, error) {
	file := dockerfile + ".id"
	// Only this format keeps HEALTHCHECK and SHELL.
	if err := p.run(ctx, log, log, p.with("build", "--format", "docker", "--iidfile", file, "--file", dockerfile, contextDir)...); err != nil {
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
