package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/runner"
)

func jobsCommand(g *globals) *cobra.Command {
	f := &jobsFlags{}
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Submit runs as jobs, watch them, wait for them, answer and cancel them",
		Long: `Submit runs as jobs, watch them, wait for them, answer and cancel them: at an evalrun serve
(--server), or in the store itself, where an evalrun executor or serve executes them. A job is a run
of an eval set that the configuration names. docs/jobs-api.md describes the interface, which other
clients of an MCP Mesh registry speak, too.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.register(cmd)
	cmd.AddCommand(jobsSubmitCommand(g, f), jobsStatusCommand(g, f), jobsWaitCommand(g, f), jobsCancelCommand(g, f),
		jobsEventsCommand(g, f, false), jobsPostCommand(g, f), jobsEventsCommand(g, f, true))
	return cmd
}

// shownJob is a job as it is printed.
type shownJob struct {
	ID              string          `json:"id"`
	Capability      string          `json:"capability"`
	Status          string          `json:"status"`
	Progress        *float64        `json:"progress"`
	ProgressMessage string          `json:"progress_message"`
	Error           string          `json:"error"`
	Result          json.RawMessage `json:"result"`

	raw json.RawMessage
}

// UnmarshalJSON also keeps the whole document.
func (j *shownJob) UnmarshalJSON(data []byte) error {
	type plain shownJob
	j.raw = bytes.Clone(data)
	return json.Unmarshal(data, (*plain)(j))
}

func (j *shownJob) ended() bool {
	return j.Status == "completed" || j.Status == "failed" || j.Status == "cancelled"
}

// verdict is the exit code of a job that has ended.
func (j *shownJob) verdict() error {
	if j.Status != "completed" {
		return &exitError{exitFaulted, errors.New(redact.Line(cmp.Or(j.Error, j.Status)))}
	}
	var result struct{ Verdict, Reason string }
	_ = json.Unmarshal(j.Result, &result) // the result of a rollout has no verdict
	for v := runner.Failed; v <= runner.Interrupted; v++ {
		if v.String() == result.Verdict {
			return &exitError{v.ExitCode(), errors.New(redact.Line(result.Reason))}
		}
	}
	return nil
}

func (j *shownJob) print(cmd *cobra.Command, g *globals) error {
	if g.json {
		return printJSON(cmd, j.raw)
	}
	line := fmt.Sprintf("%s  %s  %s", j.ID, j.Status, redact.Line(j.Capability))
	if j.Progress != nil {
		line += fmt.Sprintf("  %.0f%%", *j.Progress*100)
	}
	if more := cmp.Or(j.Error, j.ProgressMessage); more != "" {
		line += "  " + redact.Line(more)
	}
	printf(stdout(cmd), "%s\n", line)
	return nil
}

func jobsSubmitCommand(g *globals, f *jobsFlags) *cobra.Command {
	var payload, by, key string
	var retries int
	var retryOn []string
	var maxDuration, within time.Duration
	cmd := &cobra.Command{
		Use:   "submit EVALSET",
		Short: "Submit a run of a named eval set, and print the id of the job",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"capability": args[0], "submitted_by": by, "submitted_payload": map[string]any{}}
			if payload != "" {
				content, err := readPayload(cmd, payload)
				if err != nil {
					return err
				}
				body["submitted_payload"] = content
			}
			if cmd.Flags().Changed("max-retries") {
				body["max_retries"] = retries
			}
			if retryOn != nil {
				body["retry_on"] = retryOn
			}
			for name, d := range map[string]time.Duration{"max-duration": maxDuration, "within": within} {
				if cmd.Flags().Changed(name) && d < time.Second {
					return usageError("--%s: expected a duration of at least 1s, got %v", name, d)
				}
			}
			if maxDuration > 0 {
				body["max_duration"] = int64(maxDuration.Seconds())
			}
			header := []string{"Idempotency-Key", cmp.Or(key, uuid.NewString())} // so that the request can be repeated
			// It sends a duration, not a time: a repeated request must be the same.
			if within > 0 {
				header = append(header, "X-Mesh-Timeout", fmt.Sprint(int64(within.Seconds())))
			}
			return f.with(cmd, g, true, func(c *jobsClient) error {
				var made json.RawMessage
				var head struct{ ID string }
				if err := c.send(cmd.Context(), "POST", "/jobs", body, &made, header...); err != nil {
					return err
				}
				if g.json {
					return printJSON(cmd, made)
				}
				if err := json.Unmarshal(made, &head); err != nil {
					return internal(err)
				}
				printf(stdout(cmd), "%s\n", head.ID)
				if c.local && !g.quiet {
					printf(cmd.ErrOrStderr(), "evalrun executor works on it, if none does yet\n")
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&payload, "payload", "",
		"a `FILE` with agent, epochs, evalIds and inputs, one JSON object; - is stdin")
	flags.StringVar(&by, "by", "evalrun", "`WHO` submits it")
	flags.StringVar(&key, "idempotency-key", "", "a submit with the same `KEY` makes no second job")
	flags.IntVar(&retries, "max-retries", 0, "repeat a failed segment `N` times at most (default: as the set says)")
	flags.StringSliceVar(&retryOn, "retry-on", nil,
		"the `CATEGORIES` of faults that are repeated, or * (default: as the set says)")
	flags.DurationVar(&maxDuration, "max-duration", 0,
		"the working time of a rollout is `DURATION` at most (default: as the set says)")
	flags.DurationVar(&within, "within", 0, "the job fails if it has not ended in `DURATION`")
	return cmd
}

func jobsStatusCommand(g *globals, f *jobsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "status JOB",
		Short: "Print the status of a job",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd, g, false, func(c *jobsClient) error {
				var j shownJob
				if err := c.send(cmd.Context(), "GET", jobPath(args[0]), nil, &j); err != nil {
					return err
				}
				return j.print(cmd, g)
			})
		},
	}
}

func jobPath(id string) string { return "/jobs/" + url.PathEscape(id) }

func jobsWaitCommand(g *globals, f *jobsFlags) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait JOB",
		Short: "Wait until a job has ended; the exit code is the verdict on its run",
		Long: `Wait until a job has ended. The exit code is the verdict on its run, 3 if the job failed or was
cancelled, and 75 if --timeout passed first.`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.with(cmd, g, false, func(c *jobsClient) error {
				began, asked := time.Now(), ""
				for {
					wait := jobsWait
					if timeout > 0 {
						wait = min(wait, timeout-time.Since(began)+time.Second)
					}
					var j shownJob
					if err := c.send(ctx, "GET", fmt.Sprintf("%s?wait=%d", jobPath(args[0]), int(wait.Seconds())), nil,
						&j); err != nil {
						return err
					}
					if j.ended() {
						return errors.Join(j.print(cmd, g), j.verdict())
					}
					if timeout > 0 && time.Since(began) >= timeout {
						return errors.Join(j.print(cmd, g), &exitError{exitSuspended, fmt.Errorf("it has not ended after %v", timeout)})
					}
					if j.Status == "input_required" && j.ProgressMessage != asked && !g.quiet {
						asked = j.ProgressMessage
						printf(cmd.ErrOrStderr(), "it asks: %s\n", redact.Line(asked))
					}
				}
			})
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait for `DURATION` at most; 0 is for ever")
	return cmd
}

func jobsCancelCommand(g *globals, f *jobsFlags) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel JOB",
		Short: "Cancel a job",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.with(cmd, g, false, func(c *jobsClient) error {
				var out json.RawMessage
				if err := c.sendUnrepeated(cmd.Context(), jobPath(args[0])+"/cancel", map[string]string{"reason": reason},
					&out); err != nil {
					return err
				}
				if g.json {
					return printJSON(cmd, out)
				}
				printf(stdout(cmd), "cancelled\n")
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "the `REASON`")
	return cmd
}

func jobsPostCommand(g *globals, f *jobsFlags) *cobra.Command {
	var payload string
	cmd := &cobra.Command{
		Use:   "post JOB TYPE",
		Short: "Append an event to the log of a job; one of type answer answers its question",
		Args:  exactly(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"type": args[1]}
			if payload != "" {
				content, err := readPayload(cmd, payload)
				if err != nil {
					return err
				}
				body["payload"] = content
			}
			return f.with(cmd, g, false, func(c *jobsClient) error {
				var out struct {
					Seq       int64  `json:"seq"`
					JobID     string `json:"job_id"`
					CreatedAt int64  `json:"created_at"`
				}
				if err := c.sendUnrepeated(cmd.Context(), jobPath(args[0])+"/events", body, &out); err != nil {
					return err
				}
				if g.json {
					return printJSON(cmd, out)
				}
				printf(stdout(cmd), "%d\n", out.Seq)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&payload, "payload", "", "a `FILE` with the payload, one JSON document; - is stdin")
	return cmd
}

// watchWait is how long watch waits for events before it checks whether the job has ended. The
// registry of MCP Mesh does not answer at the end of a job.
const watchWait = 5 * time.Second

// jobsEventsCommand is the command events, or with follow watch, which goes on until the job has
// ended.
func jobsEventsCommand(g *globals, f *jobsFlags, follow bool) *cobra.Command {
	var after int64
	var types []string
	cmd := &cobra.Command{
		Use:   "events JOB",
		Short: "Print the log of a job, one JSON object a line",
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return f.with(cmd, g, false, func(c *jobsClient) error {
				query := url.Values{"limit": {"500"}}
				if len(types) > 0 {
					query.Set("types", strings.Join(types, ","))
				}
				for ended := false; ; {
					query.Set("after", fmt.Sprint(after))
					var page struct {
						Events []json.RawMessage `json:"events"`
						Next   int64             `json:"next_after"`
					}
					if err := c.send(ctx, "GET", jobPath(args[0])+"/events?"+query.Encode(), nil, &page); err != nil {
						return err
					}
					for _, e := range page.Events {
						printf(stdout(cmd), "%s\n", e)
					}
					moved := page.Next > after
					after = page.Next
					if len(page.Events) == 500 || ended && moved {
						continue
					}
					if !follow || ended {
						return nil
					}
					var j shownJob
					if err := c.send(ctx, "GET", jobPath(args[0]), nil, &j); err != nil {
						return err
					}
					ended = j.ended() // its last event may have come after the page
					if query.Set("wait", fmt.Sprint(int(watchWait.Seconds()))); ended {
						query.Del("wait")
					}
				}
			})
		},
	}
	if follow {
		cmd.Use, cmd.Short = "watch JOB",
			"Print the log of a job as it grows, one JSON object a line, until the job has ended"
	}
	cmd.Flags().Int64Var(&after, "after", 0, "begin after the event with the number `N`")
	cmd.Flags().StringSliceVar(&types, "types", nil, "only events of these `TYPES`")
	return cmd
}
