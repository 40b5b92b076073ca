package tasks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Lookup returns the value of a variable that was passed to evalrun for tasks. It is called for
// every variable that is resolved, so it is also the place to learn which values are secrets.
type Lookup func(name string) (value string, ok bool)

// These are the two ways in which ${VAR} and ${VAR:-default} are read. In a variable of the
// environment the reference must be the whole value, and everything else is taken as it is
// (benchflow's task/env.py). In a value of an MCP server it may also be a part. A variable that is
// set but empty counts as set, unlike in a shell, and nothing is resolved twice.
var (
	wholeReference = regexp.MustCompile(`^\$\{([^}:]+)(?::-(.*))?\}$`)
	partReference  = regexp.MustCompile(`\$\{([^}:]+)(?::-([^}]*))?\}`)
)

// MissingVariableError says that a task refers to a variable that was not passed.
type MissingVariableError struct {
	// Key is the place of the reference, such as verifier.env.TOKEN, and Name the variable.
	Key, Name string
}

// MissingVariables takes the error of [Config.Missing] apart.
func MissingVariables(err error) (all []*MissingVariableError) {
	var one *MissingVariableError
	var several interface{ Unwrap() []error }
	switch {
	case errors.As(err, &several):
		for _, e := range several.Unwrap() {
			all = append(all, MissingVariables(e)...)
		}
	case errors.As(err, &one):
		all = append(all, one)
	}
	return all
}

// Error tells the user what to do.
func (e *MissingVariableError) Error() string {
	return fmt.Sprintf("%s: the variable ${%s} is not passed to tasks; pass it with --env %s", e.Key, e.Name, e.Name)
}

// ExpandEnv resolves the variables of environment.env, verifier.env, solution.env or the env of a
// setup command; key names which of them, for errors. The error joins a [MissingVariableError] for
// each variable that is missing.
func ExpandEnv(key string, env []KeyValue, lookup Lookup) ([]KeyValue, error) {
	x := expansion{reference: wholeReference, lookup: lookup}
	out := x.all(env)
	return out, x.err(key)
}

// ExpandServer resolves the references in env, headers and url of an MCP server, wherever in the
// value they stand.
func ExpandServer(s MCPServer, lookup Lookup) (MCPServer, error) {
	x := expansion{reference: partReference, lookup: lookup}
	x.server(&s)
	return s, x.err("mcp_servers." + s.Name)
}

// expansion resolves variables and collects those that are missing.
type expansion struct {
	reference *regexp.Regexp
	lookup    Lookup
	missing   []missingVariable
}

// missingVariable is a variable that is missing, and the keys below which the reference stands.
type missingVariable struct {
	name string
	keys []string
}

// err joins a [MissingVariableError] for each variable that is missing.
func (x *expansion) err(key string) error {
	var errs []error
	for _, m := range x.missing {
		errs = append(errs, &MissingVariableError{Key: key + "." + strings.Join(m.keys, "."), Name: m.name})
	}
	return errors.Join(errs...)
}

func (x *expansion) server(s *MCPServer) {
	s.URL = x.value(s.URL, "url")
	s.Env = x.all(s.Env, "env")
	s.Headers = x.all(s.Headers, "headers")
}

func (x *expansion) all(values []KeyValue, keys ...string) []KeyValue {
	out := slices.Clone(values)
	for i := range out {
		out[i].Value = x.value(out[i].Value, append(slices.Clip(keys), out[i].Name)...)
	}
	return out
}

func (x *expansion) value(value string, keys ...string) string {
	var out strings.Builder
	end := 0
	for _, m := range x.reference.FindAllStringSubmatchIndex(value, -1) {
		out.WriteString(value[end:m[0]])
		end = m[1]
		name := value[m[2]:m[3]]
		switch v, ok := x.lookup(name); {
		case ok:
			out.WriteString(v)
		case m[4] >= 0:
			out.WriteString(value[m[4]:m[5]])
		default:
			x.missing = append(x.missing, missingVariable{name, keys})
		}
	}
	out.WriteString(value[end:])
	return out.String()
}

// Variables returns the names of all variables that the task refers to, sorted. Those with a
// default need not be passed.
func (c *Config) Variables() []string {
	var names []string
	_ = c.Missing(func(name string) (string, bool) { // nothing is
		names = append(names, name)
		return "", true
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// Missing reports the variables to which the task refers that are not passed and have no default:
// it joins a [MissingVariableError] for each place.
func (c *Config) Missing(lookup Lookup) error {
	var errs []error
	env := func(key string, env []KeyValue) {
		_, err := ExpandEnv(key, env, lookup)
		errs = append(errs, err)
	}
	environment := func(key string, e *Environment) {
		env(key+".env", e.Env)
		for i, s := range e.SetupCommands {
			env(fmt.Sprintf("%s.setup_commands[%d].env", key, i), s.Env)
		}
		for _, s := range e.MCPServers {
			_, err := ExpandServer(s, lookup)
			errs = append(errs, err)
		}
	}
	verifier := func(key string, v *Verifier) {
		env(key+".env", v.Env)
		if v.Environment != nil {
			environment(key+".environment", v.Environment)
		}
	}
	environment("environment", &c.Environment)
	verifier("verifier", &c.Verifier)
	env("solution.env", c.Solution.Env)
	for i := range c.Steps {
		verifier(fmt.Sprintf("steps[%d].verifier", i), &c.Steps[i].Verifier)
	}
	return errors.Join(errs...)
}
