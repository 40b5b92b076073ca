package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// makeResources makes the networks and volumes of the file. It makes those that no service uses,
// too, because main may use them.
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
	for _, name := range s.compose.allVolumes(s.mounts) {
		dir := filepath.Join(s.volumes, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		args := []string{"volume", "create", "--driver", "local",
			"--opt", "type=none", "--opt", "o=bind", "--opt", "device=" + dir}
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
	if says(err, "already exists") { // an engine that outlived its evalrun has made it again, without labels
		if _, err = s.engine.run(ctx, args[0], "rm", "-f", s.resource(name)); err == nil {
			_, err = s.engine.run(ctx, args...)
		}
	}
	return err
}

// Close removes the containers of the services, their networks and their volumes, unless another
// holder of the rollout has made its own meanwhile.
func (s *Services) Close(ctx context.Context) error { return s.remove(ctx, owner(os.Getpid())) }

// remove removes everything of the file that the engine has. If made is not empty it removes only
// what that process has made.
func (s *Services) remove(ctx context.Context, made string) (err error) {
	for _, k := range kinds() {
		names, failed := s.engine.list(ctx, k, labelProject+"="+s.project())
		err = errors.Join(err, failed)
		for _, name := range names {
			if made != "" {
				if by, gone := s.engine.ownerOf(ctx, k, name); gone != nil || by != made {
					continue // somebody has removed it meanwhile
				}
			}
			err = errors.Join(err, s.engine.remove(ctx, k, name))
		}
	}
	return err
}
