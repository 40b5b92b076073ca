package container

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// nameVolumes gives every volume of the services a name, also those that have none in the file and
// those of their images. Otherwise the engine would make them anew each time. It builds or pulls
// the images, since only they say which volumes they have. file is the compose file without them.
func (s *Services) nameVolumes(ctx context.Context, file string) error {
	s.mounts = map[string]map[string]string{}
	for _, one := range s.compose.services {
		mounts := maps.Clone(one.volumes)
		of, err := s.imageVolumes(ctx, one.name, file)
		if err != nil {
			return fmt.Errorf("service %q of %s %w: %w", one.name, ComposeFile, errNotStarted, err)
		}
		covered := s.covered(one.name)
		for _, inside := range of {
			if _, mounted := mounts[path.Clean(inside)]; !mounted && !slices.Contains(covered, path.Clean(inside)) {
				mounts[path.Clean(inside)] = ""
			}
		}
		for inside, name := range mounts {
			if name == "" {
				mounts[inside] = "unnamed-" + short(one.name+" "+inside)
			}
		}
		s.mounts[one.name] = mounts
	}
	return nil
}

// imageVolumes are the volumes that the image of a service has, by their inside paths. The image is
// built or pulled if it is not there.
func (s *Services) imageVolumes(ctx context.Context, name, file string) ([]string, error) {
	one := s.compose.project["services"].(map[string]any)[name].(map[string]any)
	image := one["image"].(string)
	inspect := []string{"image", "inspect", "--format", "{{json .Config.Volumes}}", image}
	out, err := s.engine.run(ctx, inspect...)
	if err != nil {
		if one["build"] != nil {
			_, err = s.runCompose(ctx, file, "build", name)
		} else {
			_, err = s.engine.run(ctx, "pull", "-q", image)
		}
		if err == nil {
			out, err = s.engine.run(ctx, inspect...)
		}
	}
	if err != nil {
		return nil, err
	}
	var volumes map[string]struct{}
	if err := json.Unmarshal([]byte(out), &volumes); err != nil {
		return nil, fmt.Errorf("the volumes of the image %s: %w", image, err)
	}
	return slices.Sorted(maps.Keys(volumes)), nil
}

// covered are the inside paths of a service at which the file has something else than a volume: a
// folder beside it, or one in memory.
func (s *Services) covered(name string) (paths []string) {
	one := s.compose.project["services"].(map[string]any)[name].(map[string]any)
	for _, folder := range one["volumes"].([]string) {
		folder = strings.TrimSuffix(folder, ":ro")
		paths = append(paths, path.Clean(folder[strings.LastIndexByte(folder, ':')+1:]))
	}
	temporary, isList := one["tmpfs"].([]any)
	if !isList {
		temporary = []any{one["tmpfs"]}
	}
	for _, folder := range temporary {
		inside, _, _ := strings.Cut(fmt.Sprint(folder), ":")
		paths = append(paths, path.Clean(inside))
	}
	return paths
}

// allVolumes are the names of the volumes that the file needs.
func (s *Services) allVolumes() []string {
	all := map[string]bool{}
	for name := range s.compose.project["volumes"].(map[string]any) {
		all[name] = true
	}
	for _, mounts := range s.mounts {
		for _, name := range mounts {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
