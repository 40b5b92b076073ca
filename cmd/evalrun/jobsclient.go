package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/serve/jobs"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

const (
	// jobsWait is how long one request waits at the server.
	jobsWait = 30 * time.Second
	// jobsPatience is how long a server may be away before its client gives up.
	jobsPatience = 60 * time.Second
)

// jobsFlags say where jobs are: at a server, or in a store.
type jobsFlags struct {
	server, tokenFile, config string
}

func (f *jobsFlags) register(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&f.server, "server", "",
		"ask the evalrun serve at `URL` (default: $EVALRUN_SERVER, else the store itself)")
	flags.StringVar(&f.tokenFile, "token-file", "", "the token for --server is in `FILE` (default: $EVALRUN_TOKEN)")
	flags.StringVar(&f.config, "config", "", "without --server: submit eval sets of `FILE` (serve.yaml)")
}

// with calls f with a client. Without a server, the handler of /jobs answers in this process, over
// the store.
func (f *jobsFlags) with(cmd *cobra.Command, g *globals, create bool, use func(*jobsClient) error) error {
	if address := cmp.Or(f.server, os.Getenv("EVALRUN_SERVER")); address != "" {
		c, err := f.remote(address)
		if err != nil {
			return err
		}
		return use(c)
	}
	var config service.Config
	if f.config != "" {
		var err error
		if config, err = service.ReadConfig(f.config); err != nil {
			return err
		}
	}
	return g.withStore(cmd, create, func(s *runner.Store) error {
		h := jobs.New(jobs.Options{Service: service.New(s, config, service.Options{}), Grace: jobs.DefaultGrace})
		return use(&jobsClient{url: "http://store", http: &http.Client{Transport: inProcess{h}}, local: true})
	})
}

func (f *jobsFlags) remote(address string) (*jobsClient, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usageError("--server: expected a URL such as http://127.0.0.1:8484, got %q", address)
	}
	token := os.Getenv("EVALRUN_TOKEN")
	if f.tokenFile != "" {
		data, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return nil, usageError("--token-file: %w", err)
		}
		token = strings.TrimSpace(string(data))
	}
	if token == "" {
		return nil,
			usageError("a server needs a token: give its file with --token-file, or set EVALRUN_TOKEN; evalrun token new makes one")
	}
	return &jobsClient{url: strings.TrimSuffix(address, "/"), token: token,
		http: &http.Client{Timeout: jobsWait + 30*time.Second}}, nil
}

// inProcess answers requests with a handler of this process, in the name of the store's owner.
type inProcess struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &answer{header: http.Header{}}
	owner := access.Identity{ID: "owner", Scopes: []access.Scope{access.Admin}}
	if r.Body == nil {
		r.Body = http.NoBody
	}
	p.ServeHTTP(answer, r.WithContext(access.With(r.Context(), owner)))
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: answer.status, Header: answer.header, Body: io.NopCloser(&answer.body),
		Request: r}, nil
}

// answer keeps the response that a handler writes.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

// jobsClient sends requests about jobs.
type jobsClient struct {
	url, token string
	http       *http.Client
	// local reports that the store of this machine answers.
	local bool
}

// send sends a request that may be repeated, and reads the response into out. It retries for a
// minute while the server cannot be reached. If the response is an error, the returned error has
// its text.
func (c *jobsClient) send(ctx context.Context, method, path string, body any, out any, header ...string) error {
	data, err := json.Marshal(body)
	if err != nil {
		return internal(err)
	}
	for began, failures := time.Now(), 0; ; failures++ {
		again, err := c.sendOnce(ctx, method, path, data, out, header)
		if err == nil || !again || c.local || time.Since(began) > jobsPatience {
			return err
		}
		select {
		case <-time.After(retry.Backoff(100*time.Millisecond, time.Second, failures)):
		case <-ctx.Done():
			return &exitError{exitInterrupted, errors.New("interrupted")}
		}
	}
}

// sendUnrepeated sends a POST request once. If no response arrives, it is unknown whether the
// request changed something.
func (c *jobsClient) sendUnrepeated(ctx context.Context, path string, body, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return internal(err)
	}
	_, err = c.sendOnce(ctx, "POST", path, data, out, nil)
	return err
}

// sendOnce sends a request once. With an error it reports whether a retry may help.
func (c *jobsClient) sendOnce(ctx context.Context, method, path string, body []byte, out any,
	header []string) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return false, usageError("%w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.http.Do(r)
	if ctx.Err() != nil {
		return false, &exitError{exitInterrupted, errors.New("interrupted")}
	}
	if err != nil {
		return true, internal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return true, internal(err)
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented: // conflicts are final here
		return true, &exitError{exitInternal, errors.New(refusal(resp, data))}
	case resp.StatusCode >= 400:
		return false, usageError("%s", refusal(resp, data))
	}
	if err := json.Unmarshal(data, out); err != nil {
		return false, internal(err)
	}
	return false, nil
}

// refusal is the text of a response that is an error.
func refusal(resp *http.Response, data []byte) string {
	var said struct{ Error, Msg, Detail string }
	_ = json.Unmarshal(data, &said) // a body that is not JSON has no text
	return redact.Line(cmp.Or(said.Error, said.Msg, said.Detail, resp.Status))
}
