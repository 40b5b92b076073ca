package wait

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Work is what the call of a tool has started, a job or an MCP task, or the question that it asks
// before it goes on. The record of the call is the one place where it is stored; everybody else
// knows it by CallID.
type Work struct {
	// CallID is the id of the call's record, and the idempotency key of what the call starts.
	CallID    string          `json:"callId"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	// Job is set for a job of the uipath.com/job contract, Task for an MCP task.
	Job  *JobHandle `json:"job,omitempty"`
	Task *MCPTask   `json:"task,omitempty"`
	// MeshJob is set for a job of MCP Mesh.
	MeshJob *MeshJob `json:"meshJob,omitempty"`
	// Input is what the task asks, or the call if it has started nothing yet.
	Input *Input `json:"input,omitempty"`
	// Session is the legacy session in which a job was started, by which its server may know the job;
	// nil if there was none.
	Session *mcp.SessionState `json:"session,omitempty"`
}

// JobHandle names a job of the uipath.com/job contract.
type JobHandle struct {
	Key       string `json:"key"`
	FolderKey string `json:"folderKey"`
}

// MeshJob names a job of MCP Mesh.
type MeshJob struct {
	ID string `json:"jobId"`
}

// MCPTask is an MCP task at its server.
type MCPTask struct {
	ID     string  `json:"taskId"`
	Era    mcp.Era `json:"era"`
	Status string  `json:"status"`
	// Message is what the server says of the status.
	Message   string    `json:"statusMessage,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// TTLMs is how long the server keeps the task after its creation, nil for ever. PollMs is how
	// often it wants to be asked.
	TTLMs  *int64 `json:"ttlMs"`
	PollMs int64  `json:"pollIntervalMs,omitempty"`
	// Session is what another process needs to ask for the task.
	Session mcp.SessionState `json:"session"`
	// EndedAt is when its server was first seen to say that it has ended, without its result. It is
	// not stored.
	EndedAt time.Time `json:"-"`
}

// ExpiresAt is when the server forgets the task; zero if never.
func (t *MCPTask) ExpiresAt() time.Time {
	if t.TTLMs == nil || t.CreatedAt.IsZero() {
		return time.Time{}
	}
	return t.CreatedAt.Add(time.Duration(*t.TTLMs) * time.Millisecond)
}

// Input is what a person has to answer before a call or a task goes on.
type Input struct {
	// Requests is what the server asks, its inputRequests. A task of 2025-11-25 has none: its
	// server asks whoever waits for the result, and only once, so it is asked when the answer is
	// there. Message is what it says meanwhile.
	Requests json.RawMessage `json:"requests,omitempty"`
	Message  string          `json:"message,omitempty"`
	// State is the requestState of a call that has to be made again with the answers.
	State json.RawMessage `json:"requestState,omitempty"`
	// Sent says that such a call was made again. A result shows whether the server has got it.
	Sent bool `json:"sent,omitempty"`
}

// Questions are the params of those requests that a person can answer, by their keys. Elicitations
// are the only such requests.
func (in *Input) Questions() (out jsonobj.Object) {
	requests, _ := jsonobj.ParseObject(in.Requests)
	for _, r := range requests {
		if asked, _ := jsonobj.ParseObject(r.Value); asked.Text("method") == mcp.AskElicitation {
			out = append(out, jsonobj.Member{Key: r.Key, Value: asked.Get("params")})
		}
	}
	return out
}

// DecodeWork reads work from the record of its call, where it is JSON; nil for a call of which no
// work is known.
func DecodeWork(raw json.RawMessage) (*Work, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	w := &Work{}
	if err := json.Unmarshal(raw, w); err != nil {
		return nil, fmt.Errorf("the record of a call cannot be read: %w", err)
	}
	return w, nil
}

// Spec returns what the rollout that started the work waits for: the job, the MCP task, or a
// person's answer. A task's id may be all that it takes to read its result, so it is shown as a
// hash.
func (w *Work) Spec() (Spec, error) {
	payload := map[string]any{"server": w.Server, "tool": w.Tool, "arguments": w.Arguments}
	spec := Spec{Type: TypeJob, Name: "JOB_RAW", Process: w.Tool, CallID: w.CallID, Server: w.Server}
	switch {
	case w.Input != nil:
		spec = Spec{Type: TypeTask, Name: string(TypeTask)}
		w.describeQuestion(payload)
	case w.Task != nil:
		sum := sha256.Sum256([]byte(w.Task.ID))
		spec.Type, spec.Name, spec.ItemKey = TypeMCPTask, string(TypeMCPTask), "task-"+hex.EncodeToString(sum[:8])
		if at := w.Task.ExpiresAt(); !at.IsZero() {
			spec.ExpiresAt = &at
		}
	case w.MeshJob != nil:
		spec.Type, spec.Name, spec.ItemKey = TypeMeshJob, string(TypeMeshJob), w.MeshJob.ID
	default:
		spec.ItemKey, spec.FolderKey = w.Job.Key, w.Job.FolderKey
	}
	var err error
	spec.Payload, err = json.Marshal(payload)
	return spec, err
}

// describeQuestion adds to a payload what a person has to answer.
func (w *Work) describeQuestion(payload map[string]any) {
	questions := w.Input.Questions()
	var titles []string
	for _, q := range questions {
		asked, _ := jsonobj.ParseObject(q.Value)
		titles = append(titles, asked.Text("message"))
	}
	if titles == nil {
		titles = []string{cmp.Or(w.Input.Message, w.Tool+" wants to know something before it goes on")}
	}
	payload["what"], payload["title"] = "question", strings.Join(titles, "\n")
	if questions != nil {
		payload["questions"] = questions.JSON()
	}
	if w.Task != nil && !w.Task.ExpiresAt().IsZero() {
		payload["expiresAt"] = w.Task.ExpiresAt() // the server forgets what it has asked
	}
}
