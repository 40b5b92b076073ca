package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/schemas"
)

func schemaCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print the JSON Schema of a file, or the names of all",
		Long: `Print the JSON Schema of a file that evalrun reads or writes. Without NAME the names of all schemas
are printed. An editor that knows the schema completes and checks the keys of an eval set:

  evalrun schema evalset > evalset.schema.json

and in the first line of an eval set in YAML:

  # yaml-language-server: $schema=evalset.schema.json

The schema of eval sets refers to those of agents and evaluators, by the addresses in their $id.`,
		Args:      between(0, 1),
		ValidArgs: schemas.Names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if g.json {
					return printJSON(cmd, schemas.Names)
				}
				printf(stdout(cmd), "%s\n", strings.Join(schemas.Names, "\n"))
				return nil
			}
			if !slices.Contains(schemas.Names, args[0]) {
				return usageError("schema: there is no schema %s; there are %s", args[0], strings.Join(schemas.Names, ", "))
			}
			data, err := schemas.FS.ReadFile(args[0] + ".schema.json")
			if err != nil {
				return internal(err)
			}
			printf(stdout(cmd), "%s", data)
			return nil
		},
	}
}
