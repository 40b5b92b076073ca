package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// makeResources makes the networks and volumes of the file. Whether a service uses them or not, main
// may.
func (s *Services) makeResources(ctx context.Context) error {
	for name := range s.compose.project["networks"].(map[string]any) {
		args := []string{"network", "create"}
		if s.internal {
			args = append(args, "--internal")
		}
		if err := s.makeResource(ctx, args, name); err != nil {
			return err
		}
	}
	for name := range s.compose.project["volumes"].(map[string]any) {
		dir := filepath.Join(s.volumes, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		args := []string{"volume", "create", "--driver", "local", "--opt", "type=none", "--opt", "o=bind", "--opt", "device=" + dir}
		if err := s.makeResource(ctx, args, name); err != nil {
			return err
		}
	}
	return nil
}

// makeResource makes a network or a volume.
func (s *Services) makeResource(ctx context.Context, args []string, name string) error {
	for _, l := range append(labels(s.rollout), labelProject+"="+s.project()) {
		args = append(args, "--label", l)
	}
	args = append(args, s.resource(name))
	_, err := s.engine.run(ctx, args...)
	if says(err, "already exists") { // an engine that outlived its evalrun has made it anew, without labels
		if _, err = s.engine.run(ctx, args[0], "rm", "-f", s.resource(name)); err == nil {
			_, err = s.engine.run(ctx, args...)
		}
	}
	return err
}

// Close removes the containers of the services, their networks and their volumes, unless another
// holder of the rollout has made its own meanwhile.
func (s *Services) Close(ctx context.Context) error {
	return s.remove(ctx, "--filter", "label="+labelOwner+"="+owner(os.Getpid()))
}

// remove removes what the engine has of the file.
func (s *Services) remove(ctx context.Context, which ...string) (err error) {
	for _, kind := range []struct{ list, remove []string }{
		{[]string{"ps", "-a", "--format", "{{.Names}}"}, nil},
		{[]string{"network", "ls", "--format", "{{.Name}}"}, []string{"network", "rm", "-f"}},
		{[]string{"volume", "ls", "--format", "{{.Name}}"}, []string{"volume", "rm", "-f"}},
	} {
		names, failed := s.engine.run(ctx, slices.Concat(kind.list, []string{"--filter", "label=" + labelProject + "=" + s.project()}, which)...)
		err = errors.Join(err, failed)
		for _, name := range strings.Fields(names) {
			if kind.remove == nil {
				err = errors.Join(err, s.engine.removeContainer(ctx, name))
			} else if _, failed := s.engine.run(ctx, append(kind.remove, name)...); !says(failed, "no such", "not found") {
				err = errors.Join(err, failed)
			}
		}
	}
	return err
}
