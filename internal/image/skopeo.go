package image

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
)

// skopeo pulls with skopeo, for users for whom no builder can work. It unpacks the images for the
// user alone. It cannot build.
type skopeo struct {
	command
	archive *archive
}

func (s *skopeo) String() string { return "skopeo" }

func (s *skopeo) build(context.Context, string, string, io.Writer) (string, error) {
	return "", errBuilding
}

func (s *skopeo) find(context.Context, string) (string, error) { return "", nil }

func (s *skopeo) pull(ctx context.Context, name string, log io.Writer) (id string, err error) {
	names := fullNames(name)
	if len(names) == 0 {
		return "", fmt.Errorf("%q cannot be the name of an image", name)
	}
	file := filepath.Join(s.tmp, "image.tar")
	err = s.run(ctx, log, log, "--override-os", "linux", "--override-arch", runtime.GOARCH,
		"copy", "docker://"+names[len(names)-1], "docker-archive:"+file)
	if err == nil {
		s.archive, err = openArchive(file, filepath.Join(s.tmp, "archive"))
	}
	if err != nil {
		return "", err
	}
	return s.archive.id, nil
}

func (s *skopeo) content(ctx context.Context, id string) ([]byte, []layer, error) {
	dir := filepath.Join(s.tmp, "root")
	if err := s.archive.flatten(ctx, dir); err != nil {
		return nil, nil, err
	}
	return s.archive.config, []layer{{"flat:" + id, dir}}, nil
}

func (s *skopeo) bases(string) ([]base, error) { return nil, nil }

func (s *skopeo) places() []string { return nil }

func (s *skopeo) layersDir() string { return s.tmp }

func (s *skopeo) recover(context.Context, io.Writer) error { return nil }
