package meshprovider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/service"
)

const (
	// callTimeout is how long the registry may take to answer, in addition to the requested wait.
	callTimeout = 15 * time.Second
	// maxAnswer is how long an answer may be.
	maxAnswer = 64 << 20
	// ownedPage is how many jobs are listed at once.
	ownedPage = 200
)

// registry is the registry of the mesh, with the requests of an agent.
type registry struct {
	base string
	// shown is base without its credentials.
	shown string
	// agent is the id of this agent: that of the mesh's configuration, in this store.
	agent string
	http  *http.Client
}

func newRegistry(m service.Mesh, storeID string) *registry {
	r := &registry{base: strings.TrimSuffix(m.Registry, "/"), agent: agentID(m.Name, storeID), http: &http.Client{}}
	if u, err := url.Parse(r.base); err == nil {
		r.shown = u.Redacted()
	}
	return r
}

// maxAgentID is how long the id of an agent may be.
const maxAgentID = 64

// agentID is the same each time that the store is served, so that the registry assigns the jobs of
// the previous process to this one.
func agentID(name, storeID string) string {
	id := "-" + strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			return c
		}
		return -1
	}, storeID)
	return name + id[:min(len(id), maxAgentID-len(name))]
}

// answerError is an error answer.
type answerError struct {
	status int
	text   string
}

func (e *answerError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.text) }

// statusOf returns the status of an error answer; 0 if there was no answer.
func statusOf(err error) int {
	var a *answerError
	if errors.As(err, &a) {
		return a.status
	}
	return 0
}

// isFinal reports whether the same request would be refused again.
func isFinal(err error) bool { s := statusOf(err); return s >= 400 && s < 500 && s != 408 && s != 429 }

// call sends a request, and reads its answer into a value if that is not nil.
func (r *registry) call(ctx context.Context, method, path string, wait time.Duration, body,
	into any) (http.Header, int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+wait)
	defer cancel()
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, 0, err
		}
		content = bytes.NewReader(data)
	}
	q, err := http.NewRequestWithContext(ctx, method, r.base+path, content)
	if err != nil {
		return nil, 0, err
	}
	if body != nil {
		q.Header.Set("Content-Type", "application/json")
	}
	a, err := r.http.Do(q)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the URL
		}
		return nil, 0, err
	}
	defer a.Body.Close()
	data, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, 0, err
	case a.StatusCode >= 300:
		var said struct{ Error, Msg string }
		_ = json.Unmarshal(data, &said) // a body that is not JSON has no text
		return a.Header, a.StatusCode, &answerError{a.StatusCode, cmp.Or(said.Error, said.Msg, http.StatusText(a.StatusCode))}
	case into != nil:
		err = json.Unmarshal(data, into)
	}
	return a.Header, a.StatusCode, err
}

// beat sends a heartbeat. It reports whether jobs are pending, and whether the registry knows the
// agent as it is.
func (r *registry) beat(ctx context.Context) (pending, known bool, err error) {
	header, status, err := r.call(ctx, http.MethodHead, "/heartbeat/"+r.agent, 0, nil, nil)
	if statusOf(err) == http.StatusGone || statusOf(err) == http.StatusNotFound {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	n, _ := strconv.Atoi(header.Get("X-Mesh-Pending-Jobs")) // a missing header is 0
	return n > 0, status == http.StatusOK, nil
}

// tool is a capability in the registry's form.
type tool struct {
	Function    string          `json:"function_name"`
	Capability  string          `json:"capability"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	// Kwargs says that it is submitted as a job.
	Kwargs map[string]bool `json:"kwargs"`
}

// register registers the agent. It has no address: nobody calls it.
func (r *registry) register(ctx context.Context, m service.Mesh) error {
	var tools []tool
	for _, c := range m.Capabilities {
		tools = append(tools, tool{c.Name, c.Name, describe(c), schemaOf(c), map[string]bool{"task": true}})
	}
	var said struct{ Status, Message string }
	_, _, err := r.call(ctx, http.MethodPost, "/heartbeat", 0, map[string]any{
		"agent_id": r.agent, "name": m.Name, "agent_type": "mcp_agent", "description": "runs eval sets against AI agents",
		"http_host": "127.0.0.1", "http_port": 0, "tools": tools,
	}, &said)
	if err == nil && said.Status == "error" {
		err = errors.New(said.Message)
	}
	return err
}

// leave removes the agent from the registry.
func (r *registry) leave(ctx context.Context) {
	_, _, _ = r.call(ctx, http.MethodDelete, "/agents/"+r.agent, 0, nil, nil) // the registry soon notices its absence, too
}

// claim claims a job of a capability, and returns its id; empty if there is none.
func (r *registry) claim(ctx context.Context, capability string) (id string, err error) {
	var found struct{ Claimed []struct{ ID string } }
	_, _, err = r.call(ctx, http.MethodPost, "/jobs/claim", 0,
		map[string]string{"capability": capability, "instance_id": r.agent}, &found)
	if err != nil || len(found.Claimed) == 0 {
		return "", err
	}
	return found.Claimed[0].ID, nil
}

// row is a job of the registry.
type row struct {
	ID           string           `json:"id"`
	Capability   string           `json:"capability"`
	Status       string           `json:"status"`
	Owner        *string          `json:"owner_instance_id"`
	Epoch        int64            `json:"claim_epoch"`
	Attempts     int              `json:"attempt_count"`
	MaxRetries   int              `json:"max_retries"`
	MaxDuration  *int64           `json:"max_duration"`
	Deadline     *int64           `json:"total_deadline"`
	SubmittedBy  string           `json:"submitted_by"`
	Payload      json.RawMessage  `json:"submitted_payload"`
	Error        *string          `json:"error"`
	RecvCursor   map[string]int64 `json:"recv_cursor"`
	LeaseExpires *int64           `json:"lease_expires_at"`
}

func (j row) ended() bool {
	return j.Status == "completed" || j.Status == "failed" || j.Status == "cancelled"
}

// row reads a job.
func (r *registry) row(ctx context.Context, id string) (j row, err error) {
	_, _, err = r.call(ctx, http.MethodGet, "/jobs/"+url.PathEscape(id), 0, nil, &j)
	return j, err
}

// owned returns the jobs that the registry has assigned to this agent.
func (r *registry) owned(ctx context.Context) (ids []string, err error) {
	query := url.Values{"owner_instance_id": {r.agent}, "status": {"working,input_required"},
		"limit": {strconv.Itoa(ownedPage)}}
	for {
		var page struct {
			Jobs []row
			Next *string `json:"next_cursor"`
		}
		if _, _, err := r.call(ctx, http.MethodGet, "/jobs?"+query.Encode(), 0, nil, &page); err != nil {
			return ids, err
		}
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if page.Next == nil || *page.Next == "" {
			return ids, nil
		}
		query.Set("cursor", *page.Next)
	}
}

// delta is an executor's report on its job. It renews the lease.
type delta struct {
	ID         string           `json:"id"`
	Epoch      int64            `json:"claim_epoch"`
	Status     string           `json:"status,omitempty"`
	Progress   *float64         `json:"progress,omitempty"`
	Message    *string          `json:"progress_message,omitempty"`
	Result     json.RawMessage  `json:"result,omitempty"`
	Error      string           `json:"error,omitempty"`
	RecvCursor map[string]int64 `json:"recv_cursor,omitempty"`
}

// tell reports the state of a job. rejected is why the registry refuses the report; empty if it
// accepts it.
func (r *registry) tell(ctx context.Context, d delta) (rejected string, err error) {
	var said struct {
		Rejected []struct{ Reason string }
	}
	_, _, err = r.call(ctx, http.MethodPost, "/jobs/batch", 0,
		map[string]any{"instance_id": r.agent, "deltas": []delta{d}}, &said)
	if err != nil || len(said.Rejected) == 0 {
		return "", err
	}
	return cmp.Or(said.Rejected[0].Reason, "no reason"), nil
}

// release gives a job back, so that it is retried.
func (r *registry) release(ctx context.Context, id, reason string) error {
	_, _, err := r.call(ctx, http.MethodPost, "/jobs/"+url.PathEscape(id)+"/release", 0,
		map[string]string{"instance_id": r.agent, "reason": reason}, nil)
	return err
}

// event is an event of a job's log.
type event struct {
	Seq     int64           `json:"seq,omitempty"`
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// post appends an event to the log of a job.
func (r *registry) post(ctx context.Context, id string, e event) error {
	_, _, err := r.call(ctx, http.MethodPost, "/jobs/"+url.PathEscape(id)+"/events", 0, e, nil)
	return err
}

// events returns the events of some types after a number. With an epoch that is not 0 the agent
// reads them as the job's executor, which renews its lease, and waits for one.
func (r *registry) events(ctx context.Context, id, types string, after, epoch int64,
	wait time.Duration) ([]event, error) {
	query := url.Values{"types": {types}, "after": {strconv.FormatInt(after, 10)}, "limit": {"500"}}
	if epoch > 0 {
		query.Set("instance_id", r.agent)
		query.Set("claim_epoch", strconv.FormatInt(epoch, 10))
		query.Set("wait", strconv.Itoa(int(wait.Seconds())))
	}
	var page struct{ Events []event }
	_, _, err := r.call(ctx, http.MethodGet, "/jobs/"+url.PathEscape(id)+"/events?"+query.Encode(), wait, nil, &page)
	return page.Events, err
}
