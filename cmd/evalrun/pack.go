package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

func packCommand(g *globals) *cobra.Command {
	var file string
	var o runner.PackOptions
	var key packKey
	var envFiles []string
	cmd := &cobra.Command{
		Use:   "pack RUN... -o FILE",
		Short: "Pack runs into one file, to go on with them elsewhere",
		Long: `Pack runs into one file with everything that belongs to them, also while they are suspended:
what the store knows of them, results, logs and workspaces. evalrun unpack puts them into another
store, be it in a folder or in PostgreSQL. The runs stay here as they are; go on with them in one
place only, or what one of the two has started may be started by the other, too. A run that another
process works on is refused.

The file has no secret that evalrun knows, and no agent's home, in which agents keep their logins.
Of a run that has ended homes are left out, and secrets in payloads are redacted; of a run that goes
on, what it needs is not changed: where it has a secret or a home, the file must be encrypted
(--with-payloads), for a passphrase or for public keys of age (https://age-encryption.org).`,
		Args: atLeastOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if file == "" {
				return usageError("pack: say where to, with -o FILE")
			}
			if o.WithPayloads && !key.given() {
				return usageError("--with-payloads: the file would have secrets; give --recipient or --passphrase-file, too")
			}
			var err error
			if o.Variables, err = runner.ReadVariables(nil, envFiles); err != nil {
				return internal(err)
			}
			if o.Key, err = key.read(); err != nil {
				return err
			}
			return g.withStore(cmd, false, func(s *runner.Store) error {
				var chosen []runner.Run
				for _, name := range args {
					run, err := s.Find(cmd.Context(), name)
					if err != nil {
						return err
					}
					if !slices.ContainsFunc(chosen, func(r runner.Run) bool { return r.ID == run.ID }) {
						chosen = append(chosen, run)
					}
				}
				o.Notice = func(text string) { printf(cmd.ErrOrStderr(), "evalrun: %s\n", redact.Line(text)) }
				if err := s.Pack(cmd.Context(), chosen, file, o); err != nil {
					return err
				}
				return g.sayRuns(cmd, s, chosen, "packed")
			})
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "the `FILE` to write, such as run.tar.zst; it must not exist")
	cmd.Flags().BoolVar(&o.WithPayloads, "with-payloads", false, "pack payloads, homes and secrets as they are; needs a key")
	cmd.Flags().StringArrayVar(&key.recipients, "recipient", nil, "encrypt the file for a public `KEY` of age (age1…; repeatable)")
	key.passphraseFlag(cmd, "encrypt the file with the passphrase in a `FILE`")
	cmd.Flags().StringArrayVar(&envFiles, "env-file", nil, "`FILE` with lines NAME=VALUE, of which no value may be in the file (repeatable)")
	return cmd
}

// packKey are the flags that say what a packed file is encrypted with.
type packKey struct {
	recipients           []string
	passphrase, identity string
}

func (k *packKey) passphraseFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&k.passphrase, "passphrase-file", "", usage)
}

func (k *packKey) given() bool {
	return k.passphrase != "" || k.identity != "" || len(k.recipients) > 0
}

// maxKey is the most bytes of a file with a key.
const maxKey = 1 << 20

// read reads the files of the key; nil if none is given.
func (k *packKey) read() (*runner.Key, error) {
	if !k.given() {
		return nil, nil
	}
	if k.passphrase != "" && len(k.recipients) > 0 {
		return nil, usageError("--passphrase-file: a file has either a passphrase or recipients")
	}
	key := &runner.Key{Recipients: k.recipients}
	if k.passphrase != "" {
		data, err := input.ReadFile(k.passphrase, maxKey)
		if err != nil {
			return nil, usageError("--passphrase-file: %v", err)
		}
		if key.Passphrase = strings.TrimRight(string(data), "\r\n"); key.Passphrase == "" {
			return nil, usageError("--passphrase-file: %s is empty", k.passphrase)
		}
	}
	if k.identity != "" {
		data, err := input.ReadFile(k.identity, maxKey)
		if err != nil {
			return nil, usageError("--identity: %v", err)
		}
		key.Identities = data
	}
	return key, nil
}

func unpackCommand(g *globals) *cobra.Command {
	var key packKey
	cmd := &cobra.Command{
		Use:   "unpack FILE",
		Short: "Put packed runs into a store",
		Long: `Put the runs of a file that evalrun pack has written into the store, in a folder or in PostgreSQL,
which is made if it is not there. Nothing is replaced: if one of the runs is in the store already,
nothing is unpacked. A file that was cut or changed is refused. A new store in a folder gets the id
of the one that the runs were in. Unpack only what you trust: resuming a run starts the commands of
its agents.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := g.openOptions(cmd)
			if err != nil {
				return err
			}
			given, err := key.read()
			if err != nil {
				return err
			}
			if given == nil {
				given = &runner.Key{}
			}
			out, err := runner.Unpack(cmd.Context(), cmp.Or(g.storeDir(), runner.DefaultDir), args[0], *given, o)
			if err != nil {
				return internal(err)
			}
			g.store = out.Dir
			return g.withStore(cmd, false, func(s *runner.Store) error {
				var runs []runner.Run
				for _, id := range out.Runs {
					run, err := s.Find(cmd.Context(), id)
					if err != nil {
						return err
					}
					runs = append(runs, run)
				}
				return g.sayRuns(cmd, s, runs, "unpacked")
			})
		},
	}
	cmd.Flags().StringVar(&key.identity, "identity", "", "a `FILE` with the secret key of age for which the file is encrypted")
	key.passphraseFlag(cmd, "a `FILE` with the passphrase of the file")
	return cmd
}

// sayRuns prints what was done with runs, and how to resume those that are not final.
func (g *globals) sayRuns(cmd *cobra.Command, s *runner.Store, runs []runner.Run, what string) error {
	if g.json {
		out := []runJSON{}
		for _, run := range runs {
			out = append(out, newRunJSON(run))
		}
		return printJSON(cmd, out)
	}
	for _, run := range runs {
		if g.quiet {
			continue
		}
		printf(stdout(cmd), "%s %s  %s  %s\n", what, run.ID, run.Status, redact.Line(run.EvaluationSetName))
		if what == "unpacked" && !run.Final {
			printf(stdout(cmd), "%s\n", fmt.Sprint("  ", resumeLine(s, run.ID)))
		}
	}
	return nil
}
