package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/agent/acpagent"
	"github.com/evalrun/evalrun/internal/gateway"
)

// bridgeCommand connects an agent that cannot speak HTTP with the MCP gateway. Agents start it
// themselves, where evalrun tells them to.
func bridgeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    acpagent.BridgeCommand,
		Short:  "Connect stdin and stdout with the MCP gateway (used by evalrun itself)",
		Hidden: true,
		Args:   exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, token := os.Getenv(acpagent.BridgeURLVar), os.Getenv(acpagent.BridgeTokenVar)
			if url == "" || token == "" {
				return usageError("%s and %s are not set: this is started by agents to which evalrun has given MCP servers",
					acpagent.BridgeURLVar, acpagent.BridgeTokenVar)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			in, out, restore := messageFiles()
			defer restore()
			return gateway.Bridge(ctx, url, token, in, out)
		},
	}
}
