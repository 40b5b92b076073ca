package main

import (
	"errors"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

func tokenCommand(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke access tokens for evalrun serve",
		Long: `Make, list and revoke access tokens for evalrun serve. A token belongs to a store, which keeps only
a digest of it. Its scopes say what its bearer may do:

  read     see runs, results, events and triggers
  run      start and cancel runs
  deliver  answer questions and hand in results
  admin    everything`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(tokenNewCommand(g), tokenListCommand(g), tokenRevokeCommand(g))
	return cmd
}

// tokenDocument is a token as --json shows it.
type tokenDocument struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt"`
	// Token is set only when the token has just been made.
	Token string `json:"token,omitempty"`
}

func newTokenDocument(t store.AccessToken, token string) tokenDocument {
	d := tokenDocument{ID: t.ID, Name: t.Name, Scopes: t.Scopes, CreatedAt: t.CreatedAt, Token: token}
	if !t.ExpiresAt.IsZero() {
		d.ExpiresAt = &t.ExpiresAt
	}
	return d
}

func tokenNewCommand(g *globals) *cobra.Command {
	var name, scope string
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a token, and print it (it is shown only once)",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			scopes, err := access.ParseScopes(scope)
			if err != nil {
				return usageError("--scope: %w", err)
			}
			if ttl < 0 {
				return usageError("--ttl: expected a duration above 0, got %v", ttl)
			}
			return g.withStore(cmd, true, func(s *runner.Store) error {
				var expires time.Time
				if ttl > 0 {
					expires = time.Now().Add(ttl)
				}
				token, t, err := access.New(cmd.Context(), tokensOf(s), name, scopes, expires)
				if err != nil {
					return internal(err)
				}
				if err := auditToken(s, "token.new", t.ID); err != nil {
					return err
				}
				if g.json {
					return printJSON(cmd, newTokenDocument(t, token))
				}
				printf(stdout(cmd), "%s\n", token)
				if !g.quiet {
					printf(cmd.ErrOrStderr(), "the token %s may %s; it cannot be shown again\n", t.ID, strings.Join(t.Scopes, ", "))
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "what the token is for: its `NAME`")
	f.StringVar(&scope, "scope", "read",
		"what its bearer may do: `SCOPES` of read, run, deliver and admin, with commas between them")
	f.DurationVar(&ttl, "ttl", 0, "let it expire after `DURATION` (720h); it does not without")
	return cmd
}

func tokenListCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tokens, without their secrets",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.withStore(cmd, false, func(s *runner.Store) error {
				tokens, err := tokensOf(s).AccessTokens(cmd.Context())
				if err != nil {
					return internal(err)
				}
				docs := make([]tokenDocument, 0, len(tokens))
				for _, t := range tokens {
					docs = append(docs, newTokenDocument(t, ""))
				}
				if g.json {
					return printJSON(cmd, docs)
				}
				w := tabwriter.NewWriter(stdout(cmd), 0, 0, 2, ' ', 0)
				printf(w, "ID\tNAME\tSCOPES\tCREATED\tEXPIRES\n")
				for _, d := range docs {
					expires := "never"
					if d.ExpiresAt != nil {
						expires = d.ExpiresAt.Local().Format(time.DateTime)
					}
					printf(w, "%s\t%s\t%s\t%s\t%s\n", d.ID, d.Name, strings.Join(d.Scopes, ","),
						d.CreatedAt.Local().Format(time.DateTime), expires)
				}
				return internal(w.Flush())
			})
		},
	}
}

func tokenRevokeCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a token: nobody can use it from then on",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.withStore(cmd, false, func(s *runner.Store) error {
				err := tokensOf(s).RevokeAccessToken(cmd.Context(), args[0])
				if errors.Is(err, store.ErrNotFound) {
					return usageError("there is no token %q; evalrun token list shows them", args[0])
				}
				if err != nil {
					return internal(err)
				}
				return auditToken(s, "token.revoke", args[0])
			})
		},
	}
}

// auditToken records in the audit log that a token was made or revoked here.
func auditToken(s *runner.Store, action, id string) error {
	audit, file, err := serve.OpenAudit(s.Dir())
	if err != nil {
		return internal(err)
	}
	return internal(errors.Join(audit.Write(serve.AuditLine{Time: time.Now().UTC(), Action: action, Object: id}),
		file.Close()))
}

func tokensOf(s *runner.Store) store.AccessTokens {
	return service.New(s, service.Config{}, service.Options{}).Tokens()
}
