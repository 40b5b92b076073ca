package tasks

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// RegistryDataset is one data set of a registry: tasks of git repositories, under a name and a
// version.
type RegistryDataset struct {
	Name, Version string
	Tasks         []RegistryTask
	// Metrics say how the rewards of the data set are summed up: mean, sum, min, max or uv-script,
	// whose script evalrun does not run; none if the registry names none.
	Metrics []string
}

// RegistryTask says where a task of a data set is.
type RegistryTask struct {
	// GitURL is the repository, empty for a folder of this machine.
	GitURL string
	// Commit is empty for the commit that the repository has checked out.
	Commit string
	Path   string
	// Digest is the digest that [CheckDigest] compares, empty if the registry has none.
	Digest string
}

// String returns the name and version as -d takes them.
func (d *RegistryDataset) String() string { return d.Name + "@" + d.Version }

// metricScript is the metric that a script computes.
const metricScript = "uv-script"

var registryMetrics = []string{"mean", "sum", "min", "max", metricScript}

// LoadRegistry reads a registry as Harbor and benchflow publish them: a JSON array of data sets.
func LoadRegistry(file string) ([]RegistryDataset, input.Problems) {
	data, err := input.ReadFile(file, input.MaxFile)
	if err != nil {
		return nil, asProblems(file, fmt.Errorf("cannot be read: %w", cmp.Or(errors.Unwrap(err), err)))
	}
	return ParseRegistry(file, data)
}

// ParseRegistry reads the text of a registry. name is what problems call it.
func ParseRegistry(name string, data []byte) ([]RegistryDataset, input.Problems) {
	root, err := input.Parse(name, data)
	if err != nil {
		return nil, asProblems(name, err)
	}
	var r input.Reader
	if root.Kind != input.Array {
		r.Errorf(root, "expected a registry, which is an array of data sets, got %s", root.Kind)
		return nil, r.Problems
	}
	var all []RegistryDataset
	for _, n := range root.Items {
		d := readDataset(&r, n)
		if slices.ContainsFunc(all, func(o RegistryDataset) bool { return o.String() == d.String() }) {
			r.Errorf(n, "the data set %s is there twice", d.String())
		}
		all = append(all, d)
	}
	return all, r.Problems
}

// IsRegistry reports whether a document looks like a registry.
func IsRegistry(n *input.Node) bool {
	return n.Kind == input.Array && len(n.Items) > 0 && n.Items[0].Member("tasks") != nil
}

var registryDigest = regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`)

func readDataset(r *input.Reader, n *input.Node) RegistryDataset {
	f := r.Object(n)
	d := RegistryDataset{Name: f.RequiredString("name"), Version: f.RequiredString("version")}
	f.Ignore("description", "bench_version")
	if list := f.Required("tasks", input.Array); list != nil {
		for _, item := range list.Items {
			d.Tasks = append(d.Tasks, readRegistryTask(r, item))
		}
		if len(list.Items) == 0 {
			r.Errorf(list, "the data set has no tasks")
		}
	}
	if list := f.Optional("metrics", input.Array); list != nil {
		for _, item := range list.Items {
			m := r.Object(item)
			kind := m.Enum("type", registryMetrics[0], registryMetrics...)
			m.Ignore("kwargs")
			m.Done()
			if kind == metricScript {
				r.Warnf(item, "a metric that a script computes is not computed: evalrun runs no scripts of a registry")
			}
			d.Metrics = append(d.Metrics, kind)
		}
	}
	f.Done()
	return d
}

func readRegistryTask(r *input.Reader, n *input.Node) RegistryTask {
	f := r.Object(n)
	t := RegistryTask{GitURL: f.String("git_url", ""), Commit: f.String("git_commit_id", ""),
		Path: f.RequiredString("path"), Digest: f.String("digest", "")}
	f.Ignore("name")
	f.Done()
	if t.Digest != "" && !registryDigest.MatchString(t.Digest) {
		r.Errorf(f.Get("digest"), "expected sha256: and 64 hexadecimal digits, got %.100q", t.Digest)
	}
	t.Digest = strings.TrimPrefix(t.Digest, "sha256:")
	return t
}

// FindDataset finds NAME@VERSION in a registry. Without a version there must be only one, so that a
// run does not depend on when the registry was read.
func FindDataset(all []RegistryDataset, reference string) (*RegistryDataset, error) {
	name, version, _ := strings.Cut(reference, "@")
	var found []*RegistryDataset
	var names, known, versions []string // of data sets, of all with their versions, and of those of this name
	for i := range all {
		d := &all[i]
		names, known = append(names, d.Name), append(known, d.String())
		if d.Name != name {
			continue
		}
		versions = append(versions, d.String())
		if version == "" || d.Version == version {
			found = append(found, d)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("there are several versions of %q; name one of %s", name, strings.Join(versions, ", "))
	case len(known) == 0:
		return nil, fmt.Errorf("there is no data set in it")
	case len(versions) > 0:
		known = versions
	case len(known) > 20:
		return nil, fmt.Errorf("there is no data set %q%s", reference, input.Suggest(name, names))
	}
	return nil, fmt.Errorf("there is no data set %q, only %s", reference, strings.Join(known, ", "))
}
