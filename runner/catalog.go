package runner

import (
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/wait"
)

// Catalog holds what an eval set may name beside its own parts. It is for evalrun's own service;
// nobody else can make one.
type Catalog struct {
	// Dir is the folder to which the paths below are relative, absolute.
	Dir string
	// Agents may be named by a set and by LoadOptions.Agents.
	Agents []agent.Entry
	// Jobs are the sources of the jobs for which a set has none.
	Jobs wait.Jobs
	// Judges are the models that evaluators ask where a set does not choose any; nil if the service
	// does not choose either. Uploaded sets can ask no others.
	Judges *judge.Config
}

// Upload is an eval set without a file. Its agents are names of the Catalog.
type Upload struct {
	// Name is its name in messages, Data is its JSON.
	Name string
	Data []byte
	// Dir is the folder to which the set's paths are relative, absolute. Evaluators are the files
	// that it may name; nil if there are none.
	Dir        string
	Evaluators fs.FS
}

func (c *Catalog) agent(name string) (agent.Entry, bool) {
	if c == nil {
		return agent.Entry{}, false
	}
	i := slices.IndexFunc(c.Agents, func(a agent.Entry) bool { return a.Name == name })
	if i < 0 {
		return agent.Entry{}, false
	}
	return c.Agents[i], true
}

func (c *Catalog) agentNames() (names []string) {
	for _, a := range c.Agents {
		names = append(names, a.Name)
	}
	return names
}

// names lists the names of the agents for a message.
func (c *Catalog) names() string { return named(c.agentNames()) }

func named(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// addJobs adds the catalog's jobs to those of the set.
func (e *EvalSet) addJobs() error {
	c := e.opts.Catalog
	if c == nil || len(c.Jobs) == 0 {
		return nil
	}
	jobs, err := c.Jobs.In(c.Dir, e.req.BaseDir)
	if err != nil {
		return err
	}
	maps.Copy(jobs, e.req.Jobs)
	e.req.Jobs = jobs
	return nil
}

// readUpload reads the set of the options.
func (e *EvalSet) readUpload(r *input.Reader) error {
	u := e.opts.Upload
	set, problems, err := evalset.Parse(u.Name, u.Data, u.Evaluators)
	r.Problems = problems
	if err != nil {
		return &InputError{Err: err}
	}
	e.req.Set, e.req.BaseDir = set, u.Dir
	return noOwnCode(set)
}
