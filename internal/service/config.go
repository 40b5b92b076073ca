package service

import (
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/notify"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

// Config describes what a service offers: the file serve.yaml. The zero value offers nothing that
// can be started.
type Config struct {
	// Catalog has the agents, jobs and judges that eval sets and requests may name.
	Catalog runner.Catalog
	// EvalSets are the sets that requests may name.
	EvalSets EvalSets
	// Notify are the targets that are told of the events of every run.
	Notify notify.Targets
	// Mesh, if not nil, is the mesh in which the service is an agent.
	Mesh *Mesh
	// Warnings are problems of the file that are not errors, one line each.
	Warnings string
}

// ReadConfig reads a configuration in YAML or JSON. Its paths are relative to its folder.
func ReadConfig(path string) (Config, error) {
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil {
		return Config{}, &runner.InputError{Err: input.Unreadable(path, err)}
	}
	root, err := input.Parse(path, data)
	if err != nil {
		return Config{}, &runner.InputError{Err: err}
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return Config{}, err
	}
	r := &input.Reader{}
	f := r.Object(root)
	c := Config{Catalog: runner.Catalog{Dir: dir}}
	c.Catalog.Agents = parseAgents(r, f)
	c.Catalog.Jobs = wait.ParseJobs(r, f.Get("jobs"))
	if n := f.Optional("judges", input.Object); n != nil {
		judges := judge.ParseConfig(r, n)
		c.Catalog.Judges = &judges
	}
	c.EvalSets = parseEvalSets(r, f, dir)
	c.Notify = notify.ParseTargets(r, f.Get("notify"))
	c.Mesh = parseMesh(r, f.Optional("mesh", input.Object), c.EvalSets)
	f.Done()
	if warnings := r.Problems.Warnings(); len(warnings) > 0 {
		c.Warnings = warnings.Error()
	}
	if err := r.Problems.Err(false); err != nil {
		return Config{}, &runner.InputError{Err: err}
	}
	return c, nil
}

func parseAgents(r *input.Reader, f *input.Fields) (out []agent.Entry) {
	n := f.Optional("agents", input.Array)
	if n == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, item := range n.Items {
		if item.Kind != input.String && item.Kind != input.Object {
			r.Errorf(item, "expected an agent's name or an object, got %s", item.Kind)
			continue
		}
		a := agent.ParseEntry(r, item)
		if seen[a.Name] && a.Name != "" {
			r.Errorf(item, "there are two agents with the name %q; give each a \"name\" of its own", a.Name)
		}
		seen[a.Name] = true
		out = append(out, a)
	}
	return out
}

// parseEvalSets reads the value of evalSets: the name of a folder, or an object of names and files.
func parseEvalSets(r *input.Reader, f *input.Fields, dir string) EvalSets {
	n := f.Get("evalSets")
	switch {
	case n == nil || n.Kind == input.Null:
		return EvalSets{}
	case n.Kind == input.String:
		folder := filepath.Join(dir, n.Text)
		if filepath.IsAbs(n.Text) {
			folder = n.Text
		}
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			r.Errorf(n, "expected a folder of eval sets, and there is no folder %q", n.Text)
		}
		return EvalSets{Dir: folder}
	case n.Kind != input.Object:
		r.Errorf(n, "expected a folder, or an object of names and files, got %s", n.Kind)
		return EvalSets{}
	}
	sets := EvalSets{files: map[string]string{}}
	for _, m := range n.Members {
		switch {
		case !setName(m.Key):
			r.Errorf(m.Value, "expected a name of letters, digits, dots, hyphens and underscores, got %q", m.Key)
			continue
		case m.Value.Kind != input.String:
			r.Errorf(m.Value, "expected the file of an eval set, got %s", m.Value.Kind)
			continue
		}
		path := m.Value.Text
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		if !input.IsFile(path) {
			r.Errorf(m.Value, "there is no file %q", m.Value.Text)
		}
		sets.files[m.Key] = path
	}
	return sets
}
