package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/tasks"
)

// sandboxFlags choose the sandbox of agents that need one, and what they find in it.
type sandboxFlags struct {
	isolation  string
	mcpConfig  string
	mcp        string
	keepImages bool
	overrides  tasks.Overrides
	given      func(name string) bool // reports whether a flag was given
}

func (p *sandboxFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	p.given = f.Changed
	f.StringVar(&p.isolation, "isolation", runner.IsolationAuto,
		"run ACP agents and tasks in `KIND`: auto (image, or podman or docker where that cannot be had and tasks have images), image (tasks in their images, everything else as bwrap), bwrap (a file tree and processes of their own; Linux), process (plain folders), podman (tasks in containers of their images), or docker (the same of a Docker daemon)")
	f.StringVar(&p.mcpConfig, "mcp-config", "",
		"give ACP agents and models the MCP servers of `FILE` too (mcpServers of a JSON, YAML or TOML file); one replaces a task's of the same name")
	f.StringVar(&p.mcp, "mcp", "gateway",
		"reach MCP servers by `HOW`: gateway (through it; it records calls and suspends rollouts on long-running work) or direct (as they are declared)")
	f.BoolVar(&p.keepImages, "keep-images", false,
		"protect the images of the run from evalrun images gc until the run is removed (default: until its rollouts are finished)")
	o := &p.overrides // the flags have Harbor's names
	f.Float64Var(&o.TimeoutMultiplier, "timeout-multiplier", 0, "multiply the time limits of tasks by `N`")
	f.Float64Var(&o.AgentTimeoutMultiplier, "agent-timeout-multiplier", 0,
		"multiply agent.timeout_sec of tasks by `N`, in place of --timeout-multiplier")
	f.Float64Var(&o.VerifierTimeoutMultiplier, "verifier-timeout-multiplier", 0,
		"multiply verifier.timeout_sec of tasks by `N`, likewise")
	f.Float64Var(&o.BuildTimeoutMultiplier, "environment-build-timeout-multiplier", 0,
		"multiply environment.build_timeout_sec of tasks by `N`, likewise")
	f.Float64Var(&o.CPUs, "override-cpus", 0, "give every task `N` CPUs, also fractions, whatever its task.toml says")
	f.IntVar(&o.MemoryMB, "override-memory-mb", 0, "give every task `N` MB of memory")
	f.IntVar(&o.StorageMB, "override-storage-mb", 0, "let every task write `N` MB")
	titled(f, titleAgents)
}

// options returns the options that the flags give. A flag that was given must have a value.
func (p *sandboxFlags) options() (runner.SandboxOptions, error) {
	o := runner.SandboxOptions{Isolation: p.isolation, MCPConfig: p.mcpConfig, KeepImages: p.keepImages,
		Overrides: p.overrides}
	for name, given := range map[string]float64{
		"timeout-multiplier":                   p.overrides.TimeoutMultiplier,
		"agent-timeout-multiplier":             p.overrides.AgentTimeoutMultiplier,
		"verifier-timeout-multiplier":          p.overrides.VerifierTimeoutMultiplier,
		"environment-build-timeout-multiplier": p.overrides.BuildTimeoutMultiplier,
		"override-cpus":                        p.overrides.CPUs,
		"override-memory-mb":                   float64(p.overrides.MemoryMB),
		"override-storage-mb":                  float64(p.overrides.StorageMB),
	} {
		if p.given(name) && !(given > 0 && given < 1e9) {
			return o, usageError("--%s: expected a number above 0, got %v", name, given)
		}
	}
	if p.isolation == "" {
		return o, usageError("--isolation: expected one of %s, got %q", strings.Join(runner.Isolations, ", "), "")
	}
	switch p.mcp {
	case "", "gateway":
	case "direct":
		o.MCPDirect = true
	default:
		return o, usageError("--mcp: expected gateway or direct, got %q", p.mcp)
	}
	return o, nil
}
