package service

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
)

// Mesh configures the service as an agent of a mesh (MCP Mesh).
type Mesh struct {
	// Registry is the URL of the mesh's registry.
	Registry string
	// Name is the name of the agent.
	Name string
	// Capabilities are the capabilities that the agent provides.
	Capabilities []MeshCapability
	// MaxJobs is how many jobs are worked on at once. Jobs that only wait are not counted.
	MaxJobs int
}

// MeshCapability is a capability of the agent.
type MeshCapability struct {
	Name string
	// EvalSet is the name of the set that its jobs run; empty if the jobs name it.
	EvalSet string
	// RetryOn are the categories of faults after which a job is retried.
	RetryOn []fault.Category
}

const (
	defaultMeshName = "evalrun"
	defaultMeshJobs = 8
	maxMeshJobs     = 1000
)

var (
	meshAgentPattern      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	meshCapabilityPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// parseMesh reads the value of mesh; nil if there is none.
func parseMesh(r *input.Reader, n *input.Node, sets EvalSets) *Mesh {
	if n == nil {
		return nil
	}
	f := r.Object(n)
	m := &Mesh{Registry: f.RequiredString("registry"), Name: f.String("name", defaultMeshName),
		MaxJobs: f.Int("maxJobs", defaultMeshJobs, 1, maxMeshJobs)}
	if u, err := url.Parse(m.Registry); m.Registry != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
		r.Errorf(f.Get("registry"), "expected the URL of a registry such as http://127.0.0.1:8000, got %q", m.Registry)
	}
	if !meshAgentPattern.MatchString(m.Name) {
		r.Errorf(f.Get("name"), "expected a name of at most 32 letters, digits, hyphens and underscores, got %q", m.Name)
	}
	list := f.Required("capabilities", input.Object)
	if list != nil && len(list.Members) == 0 {
		r.Errorf(list, "expected a capability at least, such as run_eval: {}")
	}
	if list != nil {
		for _, one := range list.Members {
			m.Capabilities = append(m.Capabilities, parseCapability(r, one, sets))
		}
	}
	f.Done()
	return m
}

func parseCapability(r *input.Reader, m input.Member, sets EvalSets) MeshCapability {
	c := MeshCapability{Name: m.Key}
	if !meshCapabilityPattern.MatchString(m.Key) {
		r.Errorf(m.Value, "expected the name of a capability, of letters, digits, dots, hyphens and underscores, got %q",
			m.Key)
	}
	f := r.Object(m.Value)
	c.EvalSet = f.String("evalSet", "")
	if c.EvalSet != "" {
		if _, err := sets.Find(c.EvalSet); err != nil {
			r.Errorf(f.Get("evalSet"), "%s", err)
		}
	}
	for _, one := range f.Strings("retryOn") {
		if !slices.Contains(fault.Categories, fault.Category(one)) {
			known := make([]string, 0, len(fault.Categories))
			for _, k := range fault.Categories {
				known = append(known, string(k))
			}
			r.Errorf(f.Get("retryOn"), "%s", fmt.Sprintf("expected categories of faults, got %q", one)+input.Suggest(one, known))
			continue
		}
		c.RetryOn = append(c.RetryOn, fault.Category(one))
	}
	f.Done()
	return c
}
