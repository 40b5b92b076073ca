package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/runner"
)

// sandboxFlags say where agents live that need a sandbox, and what they find there.
type sandboxFlags struct {
	isolation        string
	mcpConfig        string
	mcp              string
	ignoreDockerfile bool
	keepImages       bool
}

func (p *sandboxFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.isolation, "isolation", runner.IsolationImage, "run ACP agents and tasks in `KIND`: image (tasks in their images, everything else as bwrap), bwrap (a file tree and processes of their own; Linux), process (plain folders), or podman (tasks in containers of their images)")
	f.StringVar(&p.mcpConfig, "mcp-config", "", "give ACP agents the MCP servers of `FILE` too (mcpServers of a JSON, YAML or TOML file); one replaces a task's of the same name")
	f.StringVar(&p.mcp, "mcp", "gateway", "reach MCP servers by `HOW`: gateway (through it; it records calls and suspends rollouts on long-running work) or direct (as they are declared)")
	f.BoolVar(&p.keepImages, "keep-images", false, "protect the images of the run from evalrun images gc until the run is removed (default: until its rollouts are finished)")
	f.BoolVar(&p.ignoreDockerfile, "ignore-dockerfile", false, "run tasks that have an image on this machine's system instead")
	titled(f, titleAgents)
}

// options are what the flags say. A flag that was given must have a value.
func (p *sandboxFlags) options() (runner.SandboxOptions, error) {
	o := runner.SandboxOptions{Isolation: p.isolation, MCPConfig: p.mcpConfig, IgnoreDockerfile: p.ignoreDockerfile, KeepImages: p.keepImages}
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
