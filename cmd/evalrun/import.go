package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/promptfoo"
	"github.com/evalrun/evalrun/internal/samples"
)

func importCommand(g *globals) *cobra.Command {
	var o promptfoo.Options
	var of samples.Options
	var file, agent string
	var allowMissing bool
	cmd := &cobra.Command{
		Use:   "import promptfooconfig.yaml|samples.jsonl|samples.csv",
		Short: "Make an eval set of promptfoo's configuration, or of samples of others",
		Long: `Make an eval set of a configuration of promptfoo: its prompts, providers, tests and assertions.
Or of samples of OpenAI evals (.jsonl) and Inspect (.csv, .json, .jsonl): inputs and targets.
What has no counterpart here is left out, and listed on stderr with its line; the exit code is
then 3, because the set asks for less than the file, unless --allow-missing is given.
The set is written all the same. Nothing is overwritten.

With --agent the prompts and providers are left alone, and an agent of yours gets the variables
of a test as its input:

  evalrun import c.yaml --agent '{"type": "function", "command": ["./agent"]}' --path answer

Samples name no model: --model or --agent says who gets them, or run --agent, if each is one text.
They do not say how answers are compared, either, which --check does:

  evalrun import samples.jsonl --model openai/gpt-5-mini --check contains`,
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
			made, err := imported(args[0], o, of)
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
	f.StringVar(&agent, "agent", "", "the `AGENT` that is evaluated instead of prompts and providers: a name of the "+
		"registry, or an object as in an eval set")
	f.StringVar(&o.Path, "path", "", "with --agent: the `PATH` of the text in its output, such as answer")
	f.StringVar(&of.Model, "model", "", "of samples: the `MODEL` that gets their messages, such as openai/gpt-5-mini")
	f.StringVar(&of.Check, "check", "", "of samples: `HOW` answers are compared: startsWith, contains or equals; by default "+
		"as OpenAI evals (startsWith) and Inspect (contains) do by themselves")
	f.BoolVar(&allowMissing, "allow-missing", false, "exit code 0 also if something has no counterpart")
	return cmd
}

// imported makes an eval set of a file.
func imported(file string, o promptfoo.Options, of samples.Options) (*promptfoo.Imported, error) {
	of.Agent, of.Path = o.Agent, o.Path
	switch {
	case !samples.Are(file) && (of.Model != "" || of.Check != ""):
		return nil, usageError("import: --model and --check are for samples, and %s is taken for a configuration of promptfoo", file)
	case of.Check != "" && !slices.Contains(samples.Checks, of.Check):
		return nil, usageError("import: --check: expected one of %s, got %q", strings.Join(samples.Checks, ", "), of.Check)
	case of.Model != "" && of.Agent != nil:
		return nil, usageError("import: expected either --model or --agent")
	case !samples.Are(file):
		return promptfoo.Import(file, o)
	}
	if of.Model != "" {
		if _, err := modelagent.FromModel(of.Model); err != nil {
			return nil, usageError("import: --model: %v", err)
		}
	}
	made, err := samples.Import(file, of)
	return (*promptfoo.Imported)(made), err
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
