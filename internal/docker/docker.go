// Package docker speaks to a Docker daemon by its API, and shares nothing else with it: no files, no
// network, no clock. It has only those calls that evalrun needs: images are built and pulled,
// containers are made, started and removed, files go in and out as archives, and programs are run
// in containers. It knows nothing of tasks and rollouts, and decides nothing about what is removed.
package docker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// DefaultHost is where a daemon is looked for if DOCKER_HOST is not set.
	DefaultHost = "unix:///var/run/docker.sock"
	// oldestAPI and newestAPI bound the versions of the API that are spoken. The oldest is that of
	// Docker 20.10.
	oldestAPI = 41
	newestAPI = 47
	// openTimeout is how long a daemon may take to say that it is there.
	openTimeout = 20 * time.Second
	// maxAnswer bounds an answer that is read as a whole.
	maxAnswer = 16 << 20
)

// Client is a connection to a daemon. Its methods can be called concurrently.
type Client struct {
	// Platform is that of the daemon's containers, such as linux/amd64, and Version the daemon's own.
	Platform, Version string

	endpoint Endpoint
	dial     dial
	version  string // of the API, such as /v1.41
	podman   bool   // it is podman, which has the same API
	http     *http.Client
}

// Host returns the daemon's address, as in DOCKER_HOST.
func (c *Client) Host() string { return c.endpoint.Host }

// Endpoint says how the daemon is reached, and by which version of its API.
func (c *Client) Endpoint() Endpoint {
	e := c.endpoint
	e.API, e.Podman = c.version, c.podman
	return e
}

// IsPodman reports whether what answers is podman, which has the same API.
func (c *Client) IsPodman() bool { return c.podman }

// Open asks the daemon that the environment names whether it is there. The error says what to do.
func Open(ctx context.Context) (*Client, error) {
	e, err := Environment()
	if err != nil {
		return nil, err
	}
	return OpenAt(ctx, e)
}

// OpenAt is Open for the daemon at an endpoint. One with an API is not asked, and the client has no Platform and
// no Version.
func OpenAt(ctx context.Context, e Endpoint) (*Client, error) {
	c := &Client{endpoint: e}
	var err error
	if c.dial, err = e.dialer(); err != nil {
		return nil, err
	}
	// Proxies of the environment are not for the daemon.
	c.http = &http.Client{Transport: &http.Transport{DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) }}}
	if c.version, c.podman = e.API, e.Podman; c.version != "" {
		return c, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openTimeout, fmt.Errorf("it has not answered within %v", openTimeout))
	defer cancel()
	var is struct {
		Version, APIVersion, MinAPIVersion, Os, Arch string
		Components                                   []struct{ Name string }
	}
	if err := c.call(ctx, http.MethodGet, "/version", nil, nil, &is); err != nil {
		return nil, fmt.Errorf("the Docker daemon at %s does not answer: %w; %s", e.Host, err, e.mend(err))
	}
	newest, oldest := minor(is.APIVersion), minor(is.MinAPIVersion)
	switch {
	case newest < 0:
		return nil, fmt.Errorf("what answers at %s is no Docker daemon: it names no version of the API", e.Host)
	case newest < oldestAPI:
		return nil, fmt.Errorf("the Docker daemon at %s is too old: it is %s with API %s, and API 1.%d (Docker 20.10) is needed",
			e.Host, is.Version, is.APIVersion, oldestAPI)
	case oldest > newestAPI:
		return nil, fmt.Errorf("the Docker daemon at %s is too new: its oldest API is %s, and 1.%d is the newest that is spoken",
			e.Host, is.MinAPIVersion, newestAPI)
	case is.Os != "linux":
		return nil, fmt.Errorf("the Docker daemon at %s runs containers of %s, and tasks need those of Linux", e.Host, is.Os)
	}
	c.version = "/v1." + strconv.Itoa(min(newest, newestAPI))
	c.podman = len(is.Components) > 0 && strings.HasPrefix(is.Components[0].Name, "Podman")
	c.Platform, c.Version = is.Os+"/"+is.Arch, is.Version
	return c, nil
}

// mend says what to do about a daemon that does not answer.
func (e Endpoint) mend(err error) string {
	switch {
	case strings.Contains(err.Error(), "HTTPS server") && e.Certificates == "":
		return "it is behind TLS: set DOCKER_TLS_VERIFY=1, and DOCKER_CERT_PATH to the folder with ca.pem, cert.pem and key.pem"
	case errors.Is(err, os.ErrPermission):
		return "its socket is for root and the members of a group, often docker: become one of them, or name another daemon with DOCKER_HOST"
	}
	return "start it, or name another with DOCKER_HOST"
}

// minor is the second number of a version 1.N; -1 if it is none.
func minor(version string) int {
	text, ok := strings.CutPrefix(version, "1.")
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		return -1
	}
	return n
}

// Error is an answer of the daemon that says no.
type Error struct {
	Status  int
	Message string
}

func (e *Error) Error() string { return e.Message }

// IsStatus reports whether the daemon has answered with an HTTP status.
func IsStatus(err error, status int) bool {
	var e *Error
	return errors.As(err, &e) && e.Status == status
}

// IsMissing reports whether the daemon has said that what was asked for does not exist.
func IsMissing(err error) bool { return IsStatus(err, http.StatusNotFound) }

// IfShort says what to do if something has failed because the daemon's machine has no disk or no memory left.
func (c *Client) IfShort(said string) string {
	said = strings.ToLower(said)
	switch {
	case strings.Contains(said, "no space left on device"):
		return "\nthe disk of the Docker daemon at " + c.Host() + " is full: docker system df says what takes it"
	case slices.ContainsFunc([]string{"non-zero code: 137", "cannot allocate memory", "oom-killed", "cannot start a stopped process"},
		func(sign string) bool { return strings.Contains(said, sign) }):
		return "\na process was ended or not started, as it is for want of memory: docker info says how much the machine of the Docker daemon at " +
			c.Host() + " has, and environment.memory_mb what containers of the task may have"
	}
	return ""
}

// request sends a request. The caller closes the body of the answer, whose status is below 400.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader, kind string) (*http.Response, error) {
	at := "http://docker" + c.version + path
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var wrapped *url.Error // its text is the made-up address
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, err
	}
	if answer.StatusCode < 400 {
		return answer, nil
	}
	defer func() { _ = answer.Body.Close() }()
	return nil, refusal(answer)
}

// refusal reads what the daemon has refused something with.
func refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	var said struct{ Message string }
	if json.Unmarshal(text, &said) != nil || said.Message == "" {
		said.Message = cmp.Or(strings.TrimSpace(string(text)), answer.Status)
	}
	return &Error{answer.StatusCode, said.Message}
}

// call sends in as JSON, unless it is nil, and decodes the answer into out, unless that is nil.
func (c *Client) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	kind := ""
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body, kind = bytes.NewReader(data), "application/json"
	}
	answer, err := c.request(ctx, method, path, query, body, kind)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("the answer of the Docker daemon broke off: %w", err)
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("the answer of the Docker daemon is not what its API says: %w", err)
	}
	return nil
}
