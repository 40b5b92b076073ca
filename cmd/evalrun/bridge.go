package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/gateway"
)

// bridgeCommand connects an agent that cannot speak HTTP with the MCP gateway. Agents start it
// themselves, where evalrun tells them to.
func bridgeCommand() *cobra.Command {
	return &cobra.Command{
		Use:    gateway.BridgeCommand,
		Short:  "Connect stdin and stdout with the MCP gateway (used by evalrun itself)",
		Hidden: true,
		Args:   exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, out, restore := messageFiles()
			defer restore()
			err := gateway.BridgeMain(cmd.Context(), in, out)
			if errors.Is(err, gateway.ErrNotAsked) {
				return usageError("%w", err)
			}
			return err
		},
	}
}
