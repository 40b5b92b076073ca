package suspend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/wait"
)

// The tools with which any agent of MCP Mesh reports a job of its mesh.
const (
	meshTools  = "__mesh_job_"
	meshStatus = meshTools + "status"
	meshCancel = meshTools + "cancel"
)

// ErrMeshJobLost says that nobody knows a job of MCP Mesh.
var ErrMeshJobLost = errors.New("the server does not know the job any more")

// MeshAsksError says that a job of MCP Mesh asks a question whose answer its server cannot be told.
type MeshAsksError struct{ Question string }

func (e *MeshAsksError) Error() string {
	return fmt.Sprintf(`the job asks %q, which only its registry can be told: give the tool the source "mesh" in the eval set's jobs`,
		e.Question)
}

// startsMeshJobs reports whether calls of a tool may be answered by the handle of a job of MCP
// Mesh. They may if it is configured where the handle is in the result, or if the server has the
// tools that report such jobs.
func (s *policy) startsMeshJobs(name string, t gateway.Tool) bool {
	if strings.HasPrefix(name, meshTools) {
		return false
	}
	_, has := s.e.Tools().Lookup(meshStatus)
	return has && !t.ReadOnly || s.hooks.Jobs.ForProcess(name).Handle != ""
}

// meshJobOf finds the handle of a job of MCP Mesh in the result of a call, nil if there is none. A
// handle has no form of its own. If its place is not configured, an id that looks like one is
// believed if the server knows a job with it.
func (s *policy) meshJobOf(ctx context.Context, l *gateway.Upstream,
	tool string, result json.RawMessage) *wait.MeshJob {
	o := documentOf(result)
	if path := s.hooks.Jobs.ForProcess(tool).Handle; path != "" {
		names := strings.Split(path, ".")
		for _, name := range names[:len(names)-1] {
			o = o.Object(name)
		}
		if id := o.Text(names[len(names)-1]); id != "" {
			return &wait.MeshJob{ID: id}
		}
		return nil
	}
	if _, has := s.e.Tools().Lookup(meshStatus); !has {
		return nil
	}
	for _, name := range []string{"job_id", "jobId"} {
		if id := o.Text(name); uuid.Validate(id) == nil {
			if _, err := meshRow(ctx, l, meshStatus, id); err == nil {
				return &wait.MeshJob{ID: id}
			}
		}
	}
	return nil
}

// documentOf is the object that a tool has answered, structured or as a text. It is nil if there is
// none, or for an error.
func documentOf(result json.RawMessage) jsonobj.Object {
	o, err := jsonobj.ParseObject(result)
	if err != nil || string(o.Get("isError")) == "true" {
		return nil
	}
	if structured := o.Object("structuredContent"); structured != nil {
		return structured
	}
	var blocks []struct{ Type, Text string }
	if json.Unmarshal(o.Get("content"), &blocks) != nil || len(blocks) != 1 || blocks[0].Type != "text" {
		return nil
	}
	document, _ := jsonobj.ParseObject(json.RawMessage(blocks[0].Text)) // any other text is no document
	return document
}

// meshRow calls one of the tools that report a job, and returns the document that it answers.
func meshRow(ctx context.Context, l *gateway.Upstream, tool, id string) (jsonobj.Object, error) {
	argument := "job_id"
	if known := l.Endpoint().Tools().Find(ctx, l, tool); known.HasArgument("jobId") {
		argument = "jobId" // servers in TypeScript
	}
	params := jsonobj.Object{
		{Key: "name", Value: jsonobj.Quote(tool)},
		{Key: "arguments", Value: jsonobj.Object{{Key: argument, Value: jsonobj.Quote(id)}}.JSON()},
	}
	result, err := l.Client().Call(ctx, mcp.Call{Method: mcp.MethodToolsCall, Params: params.JSON(),
		Capabilities: l.Endpoint().Policy().Capabilities(mcp.Modern, mcp.EmptyObject)})
	if err != nil {
		return nil, err
	}
	if o, err := jsonobj.ParseObject(result); err == nil && string(o.Get("isError")) == "true" {
		if text := string(result); strings.Contains(text, "not found") {
			return nil, ErrMeshJobLost
		}
		return nil, fmt.Errorf("%s has failed: %s", tool, result)
	}
	row := documentOf(result)
	if row == nil {
		return nil, fmt.Errorf("%s has answered something that is no job: %s", tool, result)
	}
	return row, nil
}

// checkMeshJob asks once for a job, over a connection to the server whose tool has started it.
func checkMeshJob(ctx context.Context, l *gateway.Upstream, j wait.MeshJob) (*wait.WorkResult, error) {
	row, err := meshRow(ctx, l, meshStatus, j.ID)
	if err != nil {
		return nil, err
	}
	switch status := row.Text("status"); status {
	case "completed":
		return &wait.WorkResult{Result: MeshResult(row.Get("result"))}, nil
	case "failed", "cancelled":
		text := "the job was " + status
		if reason := row.Text("error"); reason != "" {
			text += ": " + strings.TrimPrefix(reason, "cancelled: ")
		}
		return &wait.WorkResult{Result: TextResult(text, true)}, nil
	case "input_required":
		return nil, &MeshAsksError{row.Text("progress_message")}
	case "":
		return nil, fmt.Errorf("%s has answered something that is no job: %s", meshStatus, row.JSON())
	}
	return nil, nil
}

// CheckMeshJob asks the server once for a job whose server nobody is connected with. The outcome is
// nil while the job goes on. The error is ErrMeshJobLost or a *MeshAsksError if these are the
// reason.
func CheckMeshJob(ctx context.Context, s gateway.Server, j wait.MeshJob) (*wait.WorkResult, error) {
	return withUpstream(ctx, s, func(l *gateway.Upstream) (*wait.WorkResult, error) { return checkMeshJob(ctx, l, j) })
}

// CancelMeshJob asks the server to cancel a job. A job that has ended is as good as cancelled.
func CancelMeshJob(ctx context.Context, s gateway.Server, j wait.MeshJob) error {
	_, err := withUpstream(ctx, s, func(l *gateway.Upstream) (*wait.WorkResult, error) {
		_, err := meshRow(ctx, l, meshCancel, j.ID)
		if err != nil && (errors.Is(err, ErrMeshJobLost) ||
			strings.Contains(err.Error(), "conflict") || strings.Contains(err.Error(), "terminal")) {
			err = nil
		}
		return nil, err
	})
	return err
}

// withUpstream connects with a server that nobody is connected with.
func withUpstream(ctx context.Context, s gateway.Server,
	f func(*gateway.Upstream) (*wait.WorkResult, error)) (*wait.WorkResult, error) {
	e := gateway.NewEndpoint(s, (&Hooks{}).Policy, time.Now)
	defer e.Close()
	l, err := e.OwnUpstream(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return f(l)
}

// MeshResult turns the result of a job into one of the tool that has started it.
func MeshResult(result json.RawMessage) json.RawMessage {
	if jsonobj.IsNull(result) {
		return TextResult("The job is done. It has no result.", false)
	}
	o, _ := jsonobj.ParseObject(TextResult(string(result), false))
	if _, err := jsonobj.ParseObject(result); err == nil {
		o = o.Set("structuredContent", result)
	}
	return o.JSON()
}
