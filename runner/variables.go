package runner

import (
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
)

// maxVariablesFile is how large a file with variables may be.
const maxVariablesFile = 1 << 20

// Variables are environment variables that are passed to a run: ${NAME} gives their values, which
// are redacted wherever evalrun writes. The zero value passes none.
type Variables struct {
	names  []string
	values map[string]string
}

// ReadVariables reads the variables of files with lines of NAME=VALUE, and then those that are
// named from the environment of the process.
func ReadVariables(names, files []string) (Variables, error) {
	v := Variables{values: map[string]string{}}
	for _, path := range files {
		data, err := input.ReadFile(path, maxVariablesFile)
		if err != nil {
			return v, inputError("--env-file: %w", input.Unreadable(path, err))
		}
		for i, line := range strings.Split(string(data), "\n") {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
			if name = strings.TrimSpace(name); !ok || name == "" {
				return v, inputError("%s:%d:1: expected NAME=VALUE", path, i+1)
			}
			v.set(name, unquote(strings.TrimSpace(value)))
		}
	}
	for _, name := range names {
		value, ok := os.LookupEnv(name)
		if !ok {
			return v, inputError("--env %s: the variable is not set", name)
		}
		v.set(name, value)
	}
	return v, nil
}

func (v *Variables) set(name, value string) {
	v.names, v.values[name] = append(v.names, name), value
}

// unquote takes one pair of quotes off a value.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// resolve returns the value of ${name} in an agent entry or a job: one that was passed, or else one
// of the environment.
func (v Variables) resolve(name string) (string, bool) {
	if value, ok := v.values[name]; ok {
		return value, true
	}
	return os.LookupEnv(name)
}

// lookup returns the values that were passed and no others: a task may name only these.
func (v Variables) lookup(name string) (string, bool) {
	value, ok := v.values[name]
	return value, ok
}

// secrets returns the values that are never written. more names the variables that the plan passed.
func (v Variables) secrets(more ...string) map[string]string {
	all := redact.FromEnviron(os.Environ(), slices.Concat(more, v.names))
	for name, value := range v.values {
		all[name] = value
	}
	return all
}

// Redactor returns the redactor for a run, with all secrets that this process can know.
func (v Variables) Redactor(plan plans.Plan) *redact.Redactor {
	return plan.Redactor(v.secrets(plan.Env...), v.resolve)
}

// checkPrograms makes sure that the programs of agents are on this machine, and what their entries
// name, before anything starts.
func (v Variables) checkPrograms(agents []agent.Entry, dir string) error {
	for _, a := range agents {
		if f := program.Check(a, dir, v.values, agent.Options{Resolve: v.resolve}); f != nil {
			return inputError("the agent %s: %w", a.Name, lacking(errors.New(f.Message)))
		}
		if err := a.Absent(dir); err != nil {
			return inputError("the agent %s: %w", a.Name, err)
		}
	}
	return nil
}

// check returns an error if an agent lacks a variable that it needs, so that no rollout is lost.
func (v Variables) check(agents []agent.Entry) error {
	for _, a := range agents {
		for _, name := range a.Required() {
			if _, ok := v.resolve(name); !ok {
				return inputError("the agent %s needs ${%s}, which is not set; pass it in the environment or in an --env-file",
					a.Name, name)
			}
		}
		if names := a.MissingKey(v.resolve); names != nil && a.Type == modelagent.Name {
			return inputError("the agent %s has no key for its model: set %s, in the environment or in an --env-file",
				a.Name, strings.Join(names, " or "))
		}
		// The passed variables may be the agent's own credentials.
		if names := a.MissingKey(v.resolve); names != nil && len(v.names) == 0 {
			return inputError("the agent %s has no key for its model: set %s, in the environment or in an --env-file; or pass it credentials of its own with --env NAME or with its entry's \"env\"",
				a.Name, strings.Join(names, " or "))
		}
	}
	return nil
}
