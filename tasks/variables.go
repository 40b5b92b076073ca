package tasks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Lookup returns the value of a variable that was passed to evalrun for tasks. It is called for every variable that is
// resolved, so it is also the place to learn which values are secrets.
type Lookup func(name string) (value string, ok bool)

// The two ways in which ${VAR} and ${VAR:-default} are read. In a variable of the environment the reference must be the
// whole value, and everything else is taken as it is (benchflow's task/env.py); in what belongs to an MCP server it may
// also be a part. A variable that is set but empty counts as set, unlike in a shell, and nothing is resolved twice.
var (
	wholeReference = regexp.MustCompile(`^\$\{([^}:]+)(?::-(.*))?\}$`)
	partReference  = regexp.MustCompile(`\$\{([^}:]+)(?::-([^}]*))?\}`)
)

// MissingVariableError says that a task refers to a variable that was not passed.
type MissingVariableError struct {
	// Key is where the reference stands, such as verifier.env.TOKEN, and Name the variable.
	Key, Name string
}

// Error says what to do.
func (e *MissingVariableError) Error() string {
	return fmt.Sprintf("%s: the variable ${%s} is not passed to tasks; pass it with --env %s", e.Key, e.Name, e.Name)
}

// ExpandEnv resolves the variables of environment.env, verifier.env, solution.env or the env of a setup command; key is
// which of them it is, for errors. The error joins a [MissingVariableError] for each variable that is missing.
func ExpandEnv(key string, env []KeyValue, lookup Lookup) ([]KeyValue, error) {
	return expandAll(key, env, wholeReference, lookup)
}

// ExpandServer resolves what env, headers and url of an MCP server refer to, wherever in the value it stands.
func ExpandServer(s MCPServer, lookup Lookup) (MCPServer, error) {
	key := "mcp_servers." + s.Name
	url, err := expand(key+".url", s.URL, partReference, lookup)
	env, envErr := expandAll(key+".env", s.Env, partReference, lookup)
	headers, headersErr := expandAll(key+".headers", s.Headers, partReference, lookup)
	s.URL, s.Env, s.Headers = url, env, headers
	return s, errors.Join(err, envErr, headersErr)
}

func expandAll(key string, values []KeyValue, reference *regexp.Regexp, lookup Lookup) ([]KeyValue, error) {
	out := slices.Clone(values)
	var errs []error
	for i := range out {
		value, err := expand(key+"."+out[i].Name, out[i].Value, reference, lookup)
		out[i].Value = value
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

func expand(key, value string, reference *regexp.Regexp, lookup Lookup) (string, error) {
	var out strings.Builder
	var errs []error
	end := 0
	for _, m := range reference.FindAllStringSubmatchIndex(value, -1) {
		out.WriteString(value[end:m[0]])
		end = m[1]
		name := value[m[2]:m[3]]
		switch v, ok := lookup(name); {
		case ok:
			out.WriteString(v)
		case m[4] >= 0:
			out.WriteString(value[m[4]:m[5]])
		default:
			errs = append(errs, &MissingVariableError{Key: key, Name: name})
		}
	}
	out.WriteString(value[end:])
	return out.String(), errors.Join(errs...)
}

// Variables are the names of all variables that the task refers to, sorted. Those with a default need not be passed.
func (c *Config) Variables() []string {
	var names []string
	note := func(name string) (string, bool) {
		names = append(names, name)
		return "", true
	}
	environments := []*Environment{&c.Environment}
	verifiers := []*Verifier{&c.Verifier}
	for i := range c.Steps {
		verifiers = append(verifiers, &c.Steps[i].Verifier)
	}
	for _, v := range verifiers {
		_, _ = ExpandEnv("", v.Env, note) // nothing is missing
		if v.Environment != nil {
			environments = append(environments, v.Environment)
		}
	}
	_, _ = ExpandEnv("", c.Solution.Env, note)
	for _, e := range environments {
		_, _ = ExpandEnv("", e.Env, note)
		for _, s := range e.SetupCommands {
			_, _ = ExpandEnv("", s.Env, note)
		}
		for _, s := range e.MCPServers {
			_, _ = ExpandServer(s, note)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
