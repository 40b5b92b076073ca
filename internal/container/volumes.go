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

// mountsOf are the volumes of a service by their inside paths. Each has a name, also those that have none
// in the file and those of its image: otherwise an engine would make them anew each time.
func (c *Compose) mountsOf(one service, ofImage []string) map[string]string {
	mounts, covered := maps.Clone(one.volumes), c.covered(one.name)
	for _, inside := range ofImage {
		inside = path.Clean(inside)
		if _, mounted := mounts[inside]; !mounted && !slices.Contains(covered, inside) {
			mounts[inside] = ""
		}
	}
	for inside, name := range mounts {
		if name == "" {
			mounts[inside] = "unnamed-" + short(one.name+" "+inside)
		}
	}
	return mounts
}

// covered are the inside paths of a service at which the file has something else than a volume: a
// folder beside it, or one in memory.
func (c *Compose) covered(name string) (paths []string) {
	of := c.definition(name)
	for _, folder := range foldersOf(of) {
		paths = append(paths, path.Clean(folder.inside))
	}
	for inside := range tmpfsOf(of) {
		paths = append(paths, inside)
	}
	return paths
}

// foldersOf are the files and folders beside the file that a service has.
func foldersOf(definition map[string]any) (out []mount) {
	for _, folder := range definition["volumes"].([]string) {
		folder = strings.TrimSuffix(folder, ":ro")
		at := strings.LastIndexByte(folder, ':')
		out = append(out, mount{host: folder[:at], inside: folder[at+1:]})
	}
	return out
}

// tmpfsOf are the folders in memory of a service, by their inside paths with their options.
func tmpfsOf(definition map[string]any) map[string]string {
	out := map[string]string{}
	for _, one := range wordsOf(definition["tmpfs"]) {
		inside, options, _ := strings.Cut(one, ":")
		out[path.Clean(inside)] = options
	}
	return out
}

// wordsOf are the words of a value of a compose file: those of a list, or one.
func wordsOf(value any) (out []string) {
	switch value := value.(type) {
	case nil:
	case []any:
		for _, one := range value {
			out = append(out, fmt.Sprint(one))
		}
	default:
		out = append(out, fmt.Sprint(value))
	}
	return out
}

// allVolumes are the names of the volumes that the file needs, with those that mountsOf has named.
func (c *Compose) allVolumes(mounts map[string]map[string]string) []string {
	all := map[string]bool{}
	for name := range c.project["volumes"].(map[string]any) {
		all[name] = true
	}
	for _, of := range mounts {
		for _, name := range of {
			all[name] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// nameVolumes finds out which volumes the services have. It builds or pulls their images, since only
// they say which volumes they have. file is the compose file without them.
func (s *Services) nameVolumes(ctx context.Context, file string) error {
	s.mounts = map[string]map[string]string{}
	for _, one := range s.compose.services {
		of, err := s.imageVolumes(ctx, one.name, file)
		if err != nil {
			return fmt.Errorf("service %q of %s %w: %w", one.name, ComposeFile, errNotStarted, err)
		}
		s.mounts[one.name] = s.compose.mountsOf(one, of)
	}
	return nil
}

// imageVolumes are the volumes that the image of a service has, by their inside paths. The image is
// built or pulled if it is not there.
func (s *Services) imageVolumes(ctx context.Context, name, file string) ([]string, error) {
	one := s.compose.definition(name)
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
