package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/promptfoo"
)

func importCommand(g *globals) *cobra.Command {
	var o promptfoo.Options
	var file, agent string
	var allowMissing bool
	cmd := &cobra.Command{
		Use:   "import promptfooconfig.yaml",
		Short: "Make an eval set of a configuration of promptfoo",
		Long: `Make an eval set of a configuration of promptfoo: its prompts, providers, tests and assertions.
What has no counterpart here is left out, and listed on stderr with its line; the exit code is
then 3, because the set asks for less than the configuration, unless --allow-missing is given.
The set is written all the same. Nothing is overwritten.

With --agent the prompts and providers are left alone, and an agent of yours gets the variables
of a test as its input:

  evalrun import c.yaml --agent '{"type": "function", "command": ["./agent"]}' --path answer`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.Path != "" && agent == "":
				return usageError("import: --path says where the text is in the output of --agent, which is missing")
			case strings.HasPrefix(agent, "{"):
				node, err := input.ParseJSON("--agent", []byte(agent))
				if err != nil {
					return err
				}
				o.Agent = node.JSON()
			case agent != "":
				o.Agent, _ = json.Marshal(agent) // a string always marshals
			}
			if file == "" {
				file = filepath.Join(filepath.Dir(args[0]), "evalset.json")
			}
			made, err := promptfoo.Import(args[0], o)
			if err != nil {
				return err
			}
			// What is read here is what run will read, from the folder in which the set will be.
			if _, problems, err := evalset.Parse(file, made.Set, nil); err != nil {
				return internal(errors.Join(errors.New("the set that was made is not valid"), problems.Err(false)))
			}
			if err := writeNew(file, made.Set); err != nil {
				return err
			}
			return g.sayImported(cmd, file, made, allowMissing)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&file, "output", "o", "", "the `FILE` to write; by default evalset.json beside the configuration")
	f.StringVar(&agent, "agent", "", "the `AGENT` that is evaluated instead of prompts and providers: a name of the\n"+
		"registry, or an object as in an eval set")
	f.StringVar(&o.Path, "path", "", "with --agent: the `PATH` of the text in its output, such as answer")
	f.BoolVar(&allowMissing, "allow-missing", false, "exit code 0 also if something has no counterpart")
	return cmd
}

// writeNew writes a file that is not there yet.
func writeNew(file string, data []byte) error {
	w, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return usageError("import: %s is there already; choose another file with -o", file)
	case err != nil:
		return usageError("import: %v", err)
	}
	_, err = w.Write(data)
	return errors.Join(err, w.Close())
}

// importJSON is what import prints with --json.
type importJSON struct {
	File        string         `json:"file"`
	Agents      int            `json:"agents"`
	Evaluations int            `json:"evaluations"`
	Checks      int            `json:"checks"`
	Missing     []importedJSON `json:"missing"`
	Differs     []importedJSON `json:"differs"`
}

type importedJSON struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Key     string `json:"key"`
	Message string `json:"message"`
}

func (g *globals) sayImported(cmd *cobra.Command, file string, made *promptfoo.Imported, allowMissing bool) error {
	if g.json {
		out := importJSON{File: file, Agents: made.Agents, Evaluations: made.Evaluations, Checks: made.Checks,
			Missing: placesJSON(made.Missing), Differs: placesJSON(made.Differs)}
		if err := printJSON(cmd, out); err != nil {
			return err
		}
	} else if !g.quiet {
		printf(stdout(cmd), "wrote %s: %s, %s, %s\n", file, counted(made.Agents, "agent"),
			counted(made.Evaluations, "evaluation"), counted(made.Checks, "check"))
	}
	if all := append(made.Missing, made.Differs...); len(all) > 0 {
		printf(cmd.ErrOrStderr(), "%s\n", all.Error())
	}
	if n := len(made.Missing); n > 0 && !allowMissing {
		return &exitError{exitFaulted, errors.New(fmt.Sprintf("%d of the assertions and settings have no counterpart: ", n) +
			"the set asks for less")}
	}
	return nil
}

func placesJSON(problems input.Problems) []importedJSON {
	out := []importedJSON{}
	for _, p := range problems {
		out = append(out, importedJSON{File: p.File, Line: p.Line, Key: p.Key, Message: p.Message})
	}
	return out
}
