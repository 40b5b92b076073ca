package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// docker builds and pulls with Docker's daemon, which has a storage that nobody else reads. The
// images are unpacked into one folder, for root with their owners and devices, otherwise for the
// user alone.
type docker struct{ command }

// reachable returns the reason why no daemon can be reached.
func (d *docker) reachable(ctx context.Context) error {
	var said strings.Builder
	if err := d.run(ctx, io.Discard, &said, "version", "--format", "{{.Server.Version}}"); err != nil {
		return fmt.Errorf("docker's daemon does not answer: %s", strings.TrimSpace(said.String()))
	}
	return nil
}

func (d *docker) String() string { return "docker" }

func (d *docker) build(ctx context.Context, contextDir, dockerfile string, log io.Writer) (string, error) {
	file := dockerfile + ".id"
	if err := d.run(ctx, log, log, "build", "--iidfile", file, "--file", dockerfile, contextDir); err != nil {
		return "", err
	}
	id, err := os.ReadFile(file)
	return bare(string(id)), err
}

func (d *docker) find(ctx context.Context, name string) (string, error) {
	found, err := d.output(ctx, io.Discard, "image", "inspect", "--format", "{{.Id}}", "--", name)
	if err != nil && ctx.Err() == nil {
		return "", nil // there is no such image
	}
	return bare(found), err
}

func (d *docker) pull(ctx context.Context, name string, log io.Writer) (string, error) {
	if err := d.run(ctx, log, log, "pull", "--quiet", "--", name); err != nil {
		return "", err
	}
	return d.find(ctx, name)
}

// bare is an id without the name of its algorithm.
func bare(id string) string { return strings.TrimPrefix(strings.TrimSpace(id), "sha256:") }

func (d *docker) content(ctx context.Context, id string) ([]byte, []layer, error) {
	file, dir := filepath.Join(d.tmp, "image.tar"), filepath.Join(d.tmp, "root")
	var said strings.Builder
	if err := d.run(ctx, io.Discard, &said, "save", "--output", file, "sha256:"+id); err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, said.String())
	}
	a, err := openArchive(file, filepath.Join(d.tmp, "archive"))
	if err == nil {
		err = a.flatten(ctx, dir)
	}
	if err != nil {
		return nil, nil, err
	}
	return a.config, []layer{{"flat:" + id, dir}}, nil
}

func (d *docker) bases(string) ([]base, error) { return nil, nil }

func (d *docker) places() []string { return nil }

func (d *docker) layersDir() string { return "" }

func (d *docker) recover(context.Context, io.Writer) error { return nil }
