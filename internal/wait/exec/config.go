package exec

import (
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Kind is the source of jobs that are local commands.
var Kind = wait.Kind{
	Name: wait.SourceExec, Local: true, Polled: true, Parse: parse, Settings: func() wait.Settings { return new(Config) },
	Serves: func(_ wait.JobConfig, spec wait.Spec) bool { return spec.ItemKey == "" },
	New: func(c wait.JobConfig, e wait.Env) (wait.Source, error) {
		return New(e, *c.Settings.(*Config)), nil
	},
}

// Config is a job that is a local command.
type Config struct {
	// Command gets the job's input as one JSON document on stdin and prints its result on stdout.
	Command []string `json:"command"`
	// CWD is relative to the folder of the eval set, which is also the default.
	CWD string `json:"cwd,omitempty"`
	// Env is added to evalrun's own environment; values may contain ${VAR}.
	Env map[string]string `json:"env,omitempty"`
	// Timeout ends the command; 0 means never.
	Timeout wait.Duration `json:"timeout,omitzero"`
}

// AddVariables implements wait.Settings.
func (c *Config) AddVariables(into map[string]bool) {
	for _, v := range c.Env {
		template.AddVariables(v, into)
	}
}

// In returns the settings with a folder, which is relative to dir, relative to base.
func (c *Config) In(dir, base string) (wait.Settings, error) {
	if filepath.IsAbs(c.CWD) {
		return c, nil
	}
	moved := *c
	var err error
	moved.CWD, err = filepath.Rel(base, filepath.Join(dir, c.CWD))
	return &moved, err
}

func parse(r *input.Reader, f *input.Fields) wait.Settings {
	c := &Config{CWD: f.String("cwd", ""), Env: f.StringMap("env"), Timeout: wait.Duration(f.Duration("timeout", 0))}
	if n := f.Required("command", input.Array); n != nil {
		c.Command = f.Strings("command")
		if len(c.Command) == 0 || c.Command[0] == "" {
			r.Errorf(n, "expected the program and its arguments, got none")
		}
		for _, arg := range n.Items {
			if used := map[string]bool{}; arg.Kind == input.String {
				if template.AddVariables(arg.Text, used); len(used) > 0 {
					r.Warnf(arg, "variables are not replaced in a command, which every process of the machine can read; use env")
				}
			}
		}
	}
	if env := f.Get("env"); env != nil {
		for _, m := range env.Members {
			if m.Key == "" || strings.ContainsAny(m.Key, "=\x00") {
				r.Errorf(m.Value, "expected the name of an environment variable, got %q", m.Key)
			}
			template.CheckText(r, m.Value)
		}
	}
	return c
}
