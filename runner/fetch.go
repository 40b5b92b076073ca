package runner

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/taskcache"
	"github.com/evalrun/evalrun/tasks"
)

// Fetched are tasks of git repositories that have been copied to this machine, for [LoadOptions].
type Fetched struct {
	// sources records for each folder where it was fetched from.
	sources []taskcache.Fetched
	// dataset is the requested data set of a registry, nil if there is none; its tasks are in
	// datasetDirs.
	dataset     *eval.TaskDataset
	datasetDirs []string
	// warnings are problems of the registry that are not errors.
	warnings input.Problems
}

// harborRegistry is where Harbor publishes its data sets.
const harborRegistry = "https://raw.githubusercontent.com/laude-institute/harbor/main/registry.json"

// FetchOptions say what [Fetch] fetches.
type FetchOptions struct {
	// Dataset is NAME@VERSION or REGISTRY#NAME@VERSION; empty for none.
	Dataset string
	// Registry is the registry of a Dataset that names none: a file, a folder that has a registry.json,
	// or a URL; empty for Harbor's.
	Registry string
	// Say, if not nil, is called with a line about each lengthy step.
	Say func(line string)
}

// Fetch fetches the tasks of a registry's data set, and the paths that are addresses of folders in
// git repositories: git+https://HOST/REPOSITORY#COMMIT:FOLDER. Folders that were fetched before are
// not fetched again. It returns the paths with folders of this machine in place of addresses,
// followed by the folders of the data set.
func Fetch(ctx context.Context, paths []string, o FetchOptions) (f *Fetched, local []string, err error) {
	f = &Fetched{}
	var folders []taskcache.Folder
	var check []string
	for _, one := range paths {
		if !taskcache.IsURL(one) {
			continue
		}
		folder, err := taskcache.Parse(one)
		if err != nil {
			return f, nil, &InputError{Err: err}
		}
		folders, check = append(folders, folder), append(check, "")
	}
	var beside []string
	if o.Dataset != "" || len(folders) > 0 {
		dir, err := taskcache.Dir()
		if err != nil {
			return f, nil, err
		}
		cache := taskcache.Open(dir, o.Say)
		more, err := f.readDataset(ctx, cache, o, &beside)
		for _, t := range more {
			folders, check = append(folders, t.Folder), append(check, t.digest)
		}
		if err == nil {
			f.sources, err = cache.Get(ctx, folders)
		}
		if err != nil {
			if ctx.Err() != nil {
				return f, nil, context.Cause(ctx)
			}
			return f, nil, &InputError{Err: err}
		}
	}
	next := 0
	for _, one := range paths {
		if taskcache.IsURL(one) {
			one = f.sources[next].Dir
			next++
		}
		local = append(local, one)
	}
	for i, s := range f.sources[next:] {
		if digest := check[next+i]; digest != "" {
			if err := tasks.CheckDigest(s.Dir, digest); err != nil {
				return f, nil, inputError("%s: %w", s.Folder, err)
			}
		}
		f.datasetDirs = append(f.datasetDirs, s.Dir)
	}
	f.datasetDirs = append(f.datasetDirs, beside...)
	return f, append(local, f.datasetDirs...), nil
}

// registryFolder is a folder that a registry names, with its digest there.
type registryFolder struct {
	taskcache.Folder
	digest string
}

// readRegistry reads a registry. place is the file if it is one, and dir its folder, empty at a URL.
func readRegistry(ctx context.Context, cache *taskcache.Cache, at string) (place, dir string, all []tasks.RegistryDataset, problems input.Problems, err error) {
	if strings.Contains(at, "://") {
		if all, problems, err = cache.Registry(ctx, at); err != nil {
			err = fmt.Errorf("%w; --registry names another one, or a file", err)
		}
		return at, "", all, problems, err
	}
	if info, err := os.Stat(at); err == nil && info.IsDir() {
		at = filepath.Join(at, "registry.json")
	}
	all, problems = tasks.LoadRegistry(at)
	return at, filepath.Dir(at), all, problems, problems.Err(false)
}

// readDataset finds a data set, if one is asked for. Tasks that are folders of this machine are added to
// beside; their paths are relative to the registry's folder.
func (f *Fetched) readDataset(ctx context.Context, cache *taskcache.Cache, o FetchOptions, beside *[]string) (out []registryFolder, err error) {
	if o.Dataset == "" {
		return nil, nil
	}
	at, name, named := strings.Cut(o.Dataset, "#")
	switch {
	case !named:
		at, name = cmp.Or(o.Registry, harborRegistry), o.Dataset
	case o.Registry != "":
		return nil, inputError("--dataset: %q names a registry, and so does --registry", o.Dataset)
	}
	if at == "" || name == "" || strings.HasSuffix(name, ".json") {
		return nil, inputError("--dataset: expected NAME@VERSION, of --registry or of Harbor's registry, or REGISTRY#NAME@VERSION, got %q", o.Dataset)
	}
	file, folder, all, problems, err := readRegistry(ctx, cache, at)
	if err != nil {
		return nil, &InputError{Err: err}
	}
	f.warnings = problems.Warnings()
	d, err := tasks.FindDataset(all, name)
	if err != nil {
		return nil, inputError("%s: %w", file, err)
	}
	f.dataset = &eval.TaskDataset{Registry: file, Name: d.Name, Version: d.Version, Metrics: d.Metrics}
	if folder != "" {
		f.dataset.Registry = filepath.Base(file)
	}
	for i, t := range d.Tasks {
		at := fmt.Sprintf("%s: %s, tasks[%d]", file, d, i)
		if t.GitURL == "" {
			if folder == "" {
				return nil, inputError("%s: the task has no git_url, and a registry at a URL has no folders", at)
			}
			dir := filepath.FromSlash(t.Path)
			if !filepath.IsAbs(dir) {
				dir = filepath.Join(folder, dir)
			}
			if !tasks.IsDir(dir) {
				return nil, inputError("%s: there is no task at %s", at, dir)
			}
			if t.Digest != "" {
				if err := tasks.CheckDigest(dir, t.Digest); err != nil {
					return nil, inputError("%s: %s: %w", at, dir, err)
				}
			}
			*beside = append(*beside, dir)
			continue
		}
		of, err := taskcache.New(t.GitURL, t.Commit, t.Path)
		if err != nil {
			return nil, inputError("%s: %w", at, err)
		}
		out = append(out, registryFolder{of, t.Digest})
	}
	return out, nil
}

// find finds task directories as package tasks does. Fetched directories stay in the order in which
// they were named, whatever their folders are called here.
func (f *Fetched) find(patterns []string) (dirs []string, err error) {
	if f == nil || len(f.sources) == 0 {
		return tasks.Find(patterns)
	}
	for _, one := range patterns {
		some, err := tasks.Find([]string{one})
		if err != nil {
			return nil, err
		}
		for _, dir := range some {
			if !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs, nil
}

// ofDataset reports whether a task directory belongs to the data set.
func (f *Fetched) ofDataset(dir string) bool {
	return f != nil && slices.ContainsFunc(f.datasetDirs, func(of string) bool {
		abs, err := filepath.Abs(of)
		if err != nil {
			return false
		}
		rel, err := filepath.Rel(abs, dir)
		return err == nil && filepath.IsLocal(rel)
	})
}

// source is the address from which a task directory was fetched, empty if it was not.
func (f *Fetched) source(dir string) string {
	if f == nil {
		return ""
	}
	for _, s := range f.sources {
		if rel, err := filepath.Rel(s.Dir, dir); err == nil && filepath.IsLocal(rel) {
			folder := s.Folder
			folder.Path = filepath.ToSlash(filepath.Join(filepath.FromSlash(folder.Path), rel))
			return folder.String()
		}
	}
	return ""
}
