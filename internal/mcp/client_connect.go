package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Connect connects to a server. If the era is not given, it tries the modern one first, or that of
// the options. Over stdio it starts a process for the question, since some legacy servers exit or
// fall silent on it; it keeps that process if it is a modern one. If streamable HTTP is refused, it
// tries the SSE transport of 2024-11-05 at the same URL, as the specification says of clients that
// want to support older servers. The connection does not end with ctx, which is for the handshake.
//
// The error wraps a [*StatusError] if the server wants credentials, an [*Error] if it refused, and
// ErrClosed if it is not there or has gone. It never wraps ErrSessionLost, because a session that
// is gone on with is not tried.
func Connect(ctx context.Context, t Target, o ClientOptions) (*Client, error) {
	if err := checkClient(t, o); err != nil {
		return nil, err
	}
	if o.Session != nil {
		return clientResume(ctx, t, o)
	}
	c, err := clientConnect(ctx, t, o)
	if err != nil && t.URL != "" && !t.SSE && o.Protocol != Modern && ctx.Err() == nil && refusesPosts(err) {
		t.SSE = true
		if older, sseErr := clientConnect(ctx, t, o); sseErr == nil {
			return older, nil
		}
	}
	return c, err
}

// refusesPosts reports whether a server has answered like one that has no streamable HTTP.
func refusesPosts(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && slices.Contains([]int{http.StatusBadRequest,
		http.StatusNotFound, http.StatusMethodNotAllowed}, status.Status)
}

// clientConnect connects over the transport of a target.
func clientConnect(ctx context.Context, t Target, o ClientOptions) (*Client, error) {
	first, second := Modern, Legacy
	switch {
	case t.SSE:
		return clientAttempt(ctx, t, o, Legacy)
	case o.Protocol != "":
		first = o.Protocol
	case o.First == Legacy:
		first, second = Legacy, Modern
	}
	c, err := clientAttempt(ctx, t, o, first)
	// The server refused a version that it says it speaks, so it is asked once more.
	if first == Modern && slices.Contains(clientSupported(err), Version2026_07_28) {
		c, err = clientAttempt(ctx, t, o, first)
	}
	if err == nil || o.Protocol != "" || ctx.Err() != nil || isFinal(t, err, second) {
		return c, err
	}
	before := err
	began := time.Now()
	c, err = clientAttempt(ctx, t, o, second)
	if took := time.Since(began); t.Start != nil && first == Modern &&
		errors.As(before, new(clientTimeout)) && (err != nil || 2*took > probeTimeout(o)) {
		return askAgain(ctx, t, o, took, c, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (before that: %s)", err, before.Error())
	}
	return c, nil
}

// askAgain asks a process for the modern era once more if it may have started too slowly for the
// probe. It gives the process as long as the start has taken. Otherwise the legacy client stays, or
// its error.
func askAgain(ctx context.Context, t Target, o ClientOptions,
	took time.Duration, legacy *Client, err error) (*Client, error) {
	o.ProbeTimeout = max(probeTimeout(o), 3*took)
	modern, modernErr := clientAttempt(ctx, t, o, Modern)
	switch {
	case modernErr == nil && legacy != nil:
		_ = legacy.Close() // the modern one counts
		return modern, nil
	case modernErr == nil:
		return modern, nil
	case err != nil:
		return nil, fmt.Errorf("%w (before that: %s)", err, modernErr.Error())
	}
	return legacy, nil
}

func checkClient(t Target, o ClientOptions) error {
	switch {
	case (t.Start == nil) == (t.URL == ""):
		return errors.New("an MCP server needs either a command or a URL")
	case o.Protocol != "" && o.Protocol != Legacy && o.Protocol != Modern:
		return fmt.Errorf("unknown MCP protocol %q: expected %q or %q", o.Protocol, Legacy, Modern)
	case o.Protocol == Modern && t.SSE:
		return errors.New("the SSE transport of 2024-11-05 has no modern protocol")
	case o.Version != "" && !slices.Contains(LegacyVersions, o.Version):
		return fmt.Errorf("unknown legacy MCP version %q: expected one of %s", o.Version, strings.Join(LegacyVersions, ", "))
	case o.Info != nil && !clientIsObject(o.Info):
		return errors.New("the client info is no JSON object")
	case o.Capabilities != nil && !clientIsObject(o.Capabilities):
		return errors.New("the client capabilities are no JSON object")
	case o.Session == nil:
		return nil
	case t.Start != nil || t.SSE:
		return errors.New("a session over stdio or SSE ends with its connection: there is none to go on with")
	}
	if era, ok := EraOf(o.Session.Version); !ok || era != o.Session.Era {
		return fmt.Errorf("the session to go on with has era %q and version %q, which do not belong together",
			o.Session.Era, o.Session.Version)
	}
	return nil
}

// clientIsObject reports whether a text is one JSON object.
func clientIsObject(doc json.RawMessage) bool {
	_, err := jsonobj.ParseObject(doc)
	return err == nil && !jsonobj.IsNull(doc) && jsonobj.Valid(doc)
}

// clientStartError says that there is no process to talk to.
type clientStartError struct{ cause error }

func (e *clientStartError) Error() string { return "start the MCP server: " + e.cause.Error() }
func (e *clientStartError) Unwrap() error { return e.cause }

// isFinal reports whether a server that has refused the handshake of one era need not be asked for
// the other.
func isFinal(t Target, err error, other Era) bool {
	var start *clientStartError
	if t.Start != nil {
		return errors.As(err, &start) // a legacy server may do anything else with an unknown request
	}
	var status *StatusError
	if errors.As(err, &status) && status.Unauthorized() {
		return true
	}
	var answer *Error
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code {
	case CodeHeaderMismatch, CodeMissingCapability:
		return other == Legacy
	case CodeUnsupportedVersion:
		return !slices.ContainsFunc(clientSupported(err), func(v string) bool {
			era, ok := EraOf(v)
			return ok && era == other
		})
	}
	return false
}

// clientSupported returns the versions that a server has named when it refused one.
func clientSupported(err error) []string {
	var answer *Error
	if !errors.As(err, &answer) || answer.Code != CodeUnsupportedVersion {
		return nil
	}
	data, _ := jsonobj.ParseObject(answer.Data())
	return clientTexts(data.Get("supported"))
}

// clientTexts returns the strings of a list.
func clientTexts(list json.RawMessage) (texts []string) {
	_ = json.Unmarshal(list, &texts) // anything but a list of strings has none
	return texts
}

// clientAttempt opens a connection and shakes hands in an era.
func clientAttempt(ctx context.Context, t Target, o ClientOptions, era Era) (*Client, error) {
	c := newClient(o, era, 0)
	limit, probing := c.o.HandshakeTimeout, era == Modern && o.Protocol == "" && o.First != Legacy
	if probing {
		limit = c.o.ProbeTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, clientTimeout(limit))
	defer cancel()
	c.receiver.silent.Store(probing)
	err := c.open(ctx, t)
	if err == nil {
		err = c.greet(ctx)
	}
	if err != nil {
		_ = c.Close() // the handshake's error says more
		return nil, err
	}
	if c.detach != nil {
		c.detach()
	}
	c.receiver.silent.Store(false)
	return c, nil
}

// clientTimeout is the cause of a handshake that took too long.
type clientTimeout time.Duration

func (d clientTimeout) Error() string {
	return fmt.Sprintf("the MCP server did not answer within %v", time.Duration(d))
}

func (c *Client) open(ctx context.Context, t Target) error {
	switch {
	case t.Start != nil:
		return openStdio(ctx, c, t)
	case t.SSE:
		return openSSE(ctx, c, t)
	}
	c.link = newHTTPLink(c, t)
	if c.era == Modern {
		c.receiver.sendAnswer = nil // the protocol has no way to answer a request
	}
	return nil
}

func (c *Client) greet(ctx context.Context) error {
	if c.era == Modern {
		return c.discover(ctx)
	}
	return c.initialize(ctx)
}

func (c *Client) discover(ctx context.Context) error {
	answer, err := c.Call(ctx, Call{Method: MethodDiscover})
	if err != nil {
		return err
	}
	result, err := jsonobj.ParseObject(answer)
	if err != nil {
		return fmt.Errorf("%s: %w", MethodDiscover, errClientMalformed)
	}
	if versions := clientTexts(result.Get("supportedVersions")); !slices.Contains(versions, Version2026_07_28) {
		return fmt.Errorf("%s: the MCP server speaks %q and not %s", MethodDiscover, versions, Version2026_07_28)
	}
	c.version, c.initializeResult = Version2026_07_28, answer
	return nil
}

func (c *Client) initialize(ctx context.Context) error {
	answer, err := c.Call(ctx, Call{Method: MethodInitialize, Params: jsonobj.Object{
		{Key: "protocolVersion", Value: jsonobj.Quote(c.o.Version)},
		{Key: "capabilities", Value: c.o.Capabilities}, {Key: "clientInfo", Value: c.o.Info},
	}.JSON()})
	if err != nil {
		return err
	}
	result, err := jsonobj.ParseObject(answer)
	if err != nil {
		return fmt.Errorf("%s: %w", MethodInitialize, errClientMalformed)
	}
	version := result.Text("protocolVersion")
	if !slices.Contains(LegacyVersions, version) {
		return fmt.Errorf("%s: the MCP server wants to speak version %q; expected one of %s",
			MethodInitialize, version, strings.Join(LegacyVersions, ", "))
	}
	c.version, c.initializeResult = version, answer
	http, _ := c.link.(*httpLink)
	if http != nil {
		http.setVersion(version)
	}
	if err := c.Notify(ctx, NoteInitialized, nil); err != nil {
		return err
	}
	if http != nil && !c.o.NoStream {
		http.startListening(ctx)
	}
	return nil
}

// clientResume goes on with a session. It does not ask the server whether it still knows the
// session, because the first call tells.
func clientResume(ctx context.Context, t Target, o ClientOptions) (*Client, error) {
	s := o.Session
	c := newClient(o, s.Era, rand.Int64N(1<<52)) // ids must not come again within a session
	c.version, c.initializeResult = s.Version, s.InitializeResult
	if err := c.open(ctx, t); err != nil {
		return nil, err
	}
	if http, ok := c.link.(*httpLink); ok && s.Era == Legacy {
		http.setSession(s.SessionID)
		http.setVersion(s.Version)
		if !o.NoStream {
			http.startListening(ctx)
		}
	}
	return c, nil
}
