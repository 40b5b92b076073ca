package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

const (
	// firstPoll is the poll interval of a young task, lastPoll that of an old one.
	firstPoll = time.Second
	lastPoll  = 30 * time.Second
	// taskPage is how many tasks a page has.
	taskPage = 100
)

// owner is the submitter of the jobs that are a caller's tasks.
func owner(caller access.Identity) string { return "mcp:" + caller.ID }

// tasks are the tasks of MCP: the jobs that their callers have submitted here. It is a
// taskwire.Backend.
type tasks struct {
	service   *service.Service
	st        records
	results   *results
	questions *questions
	changed   func(ctx context.Context, action, object string)
	log       *slog.Logger
	now       func() time.Time
}

// created answers a call that has become a task.
func (s *tasks) created(ctx context.Context, q *request, id string) (json.RawMessage, error) {
	t, err := s.get(ctx, q, id)
	if err != nil {
		return nil, err
	}
	if q.session != nil {
		q.session.watch(id)
	}
	return t.Created(q.Era, nil, jsonobj.Object{}), nil
}

// job finds the job of a caller's task.
func (s *tasks) job(ctx context.Context, q *request, id string) (store.Job, error) {
	j, err := s.st.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && j.SubmittedBy != owner(q.caller):
		return j, taskwire.NotFound()
	case err != nil:
		return j, internal(s.log, "reading the task", err)
	}
	return j, nil
}

// get returns a caller's task with all its parts.
func (s *tasks) get(ctx context.Context, q *request, id string) (taskwire.Task, error) {
	j, err := s.job(ctx, q, id)
	if err != nil {
		return taskwire.Task{}, err
	}
	t, err := s.view(ctx, q, j)
	if err == nil && (j.Status == store.JobCompleted || j.Status == store.JobFailed) {
		t.Result, err = s.outcome(ctx, j)
	}
	if err != nil {
		return t, internal(s.log, "reading the task", err)
	}
	return t, nil
}

// view is a task without its result. A question makes it input_required for callers who may answer
// it. For all others it is working, as they can do nothing about it.
func (s *tasks) view(ctx context.Context, q *request, j store.Job) (t taskwire.Task, err error) {
	t = taskwire.Task{ID: j.ID, Status: string(j.Status), CreatedAt: j.SubmittedAt, UpdatedAt: j.EndedAt}
	t.Poll = min(max(s.now().Sub(j.SubmittedAt)/10, firstPoll), lastPoll).Round(time.Millisecond)
	if j.Status.IsTerminal() {
		t.Message = j.Error
		return t, nil
	}
	run, err := s.service.Run(ctx, j.ID)
	if err != nil {
		return t, err
	}
	t.UpdatedAt = run.CreatedAt
	if last, err := s.st.Events(ctx, j.ID, run.Seq-1, 1); err == nil && len(last) > 0 {
		t.UpdatedAt = last[0].Time
	}
	if t.Message = standing(run.Counts); j.Status != store.JobInputRequired {
		return t, nil
	}
	asked, err := s.questions.open(ctx, j.ID)
	if err != nil {
		return t, err
	}
	if len(asked) > 0 { // otherwise it has just been answered
		t.Message = fmt.Sprintf("a person is asked: %s (trigger %s, to be answered with deliver)", asked[0].message,
			asked[0].triggerID)
	}
	switch {
	case !q.mayAnswer():
		t.Status = string(store.JobWorking)
	case mcp.Supports(q.capabilities(), mcp.AskElicitation):
		t.InputRequests = requests(asked).JSON()
	default:
		t.InputRequests = mcp.EmptyObject
	}
	return t, nil
}

// outcome is the result of a call that has become a task and is completed or has failed.
func (s *tasks) outcome(ctx context.Context, j store.Job) (json.RawMessage, error) {
	page, err := s.results.page(ctx, j.ID, position{}, defaultPage)
	if err != nil {
		return nil, err
	}
	page.Error = j.Error
	document, err := json.Marshal(page)
	if err != nil {
		return nil, err
	}
	return toolResult(document, j.Status == store.JobFailed).JSON(), nil
}

// follow calls f with a task now and at each change of the run, until it has ended or ctx is done.
// It reports whether the task has ended, or does not exist.
func (s *tasks) follow(ctx context.Context, q *request, id string, f func(taskwire.Task)) (ended bool) {
	for {
		changed := s.st.Changed(id)
		t, err := s.get(ctx, q, id)
		var said *mcp.Error
		switch {
		case errors.As(err, &said) && said.Code == mcp.CodeInvalidParams:
			return true
		case err == nil:
			if f(t); store.JobStatus(t.Status).IsTerminal() {
				return true
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Task implements taskwire.Backend.
func (s *tasks) Task(ctx context.Context, r *mcp.Request, id string) (taskwire.Task, error) {
	q := newRequest(ctx, r)
	t, err := s.get(ctx, q, id)
	if err == nil && q.session != nil && t.Result == nil {
		q.session.watch(id)
	}
	return t, err
}

// Tasks implements taskwire.Backend: the newest come first.
func (s *tasks) Tasks(ctx context.Context, r *mcp.Request,
	cursor *string) (page []taskwire.Task, next string, err error) {
	q := newRequest(ctx, r)
	f := store.JobFilter{SubmittedBy: owner(q.caller), Limit: taskPage + 1}
	if cursor != nil {
		var ok bool
		if f.BeforeTime, f.BeforeID, ok = readCursor(*cursor); !ok {
			return nil, "", mcp.Errorf(mcp.CodeInvalidParams, "Invalid cursor")
		}
	}
	jobs, err := s.st.ListJobs(ctx, f)
	if err != nil {
		return nil, "", internal(s.log, "listing the tasks", err)
	}
	if len(jobs) > taskPage {
		jobs = jobs[:taskPage]
		next = writeCursor(jobs[taskPage-1])
	}
	for _, j := range jobs {
		t, err := s.view(ctx, q, j)
		if err != nil {
			return nil, "", internal(s.log, "listing the tasks", err)
		}
		page = append(page, t)
	}
	return page, next, nil
}

func writeCursor(j store.Job) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(j.SubmittedAt.UnixMicro(), 10) + " " + j.ID))
}

func readCursor(cursor string) (at time.Time, id string, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	micros, id, ok := strings.Cut(string(text), " ")
	n, numberErr := strconv.ParseInt(micros, 10, 64)
	return time.UnixMicro(n).UTC(), id, ok && err == nil && numberErr == nil
}

// Await implements taskwire.Backend.
func (s *tasks) Await(ctx context.Context, r *mcp.Request, id string) (taskwire.Task, error) {
	q := newRequest(ctx, r)
	asking := newAsking(s.questions, q, true)
	defer asking.end()
	for {
		changed := s.st.Changed(id)
		j, err := s.job(ctx, q, id)
		if err != nil || j.Status.IsTerminal() {
			if err != nil {
				return taskwire.Task{}, err
			}
			return s.get(ctx, q, id)
		}
		if err := asking.update(ctx, j); err != nil {
			return taskwire.Task{}, err
		}
		select {
		case <-changed:
		case err := <-asking.answered:
			if asking.next(); err != nil {
				return taskwire.Task{}, err
			}
		case <-ctx.Done():
			return taskwire.Task{}, context.Cause(ctx)
		}
	}
}

// Cancel implements taskwire.Backend.
func (s *tasks) Cancel(ctx context.Context, r *mcp.Request, id string) (t taskwire.Task, did bool, err error) {
	q := newRequest(ctx, r)
	j, err := s.job(ctx, q, id)
	if err != nil {
		return t, false, err
	}
	did, err = s.cancel(ctx, j.ID, "by its client")
	if err != nil {
		return t, false, internal(s.log, "cancelling the task", err)
	}
	t, err = s.get(ctx, q, id)
	return t, did, err
}

// cancel cancels a job and its run; did is false if it had ended.
func (s *tasks) cancel(ctx context.Context, id, reason string) (did bool, err error) {
	_, err = s.st.CancelJob(ctx, id, reason, 0, wait.LocalSources()...) // they go on, as with evalrun cancel
	switch {
	case errors.Is(err, store.ErrJobEnded):
		return false, nil
	case err != nil:
		return false, err
	}
	s.service.Runner().Wake(id)
	s.changed(ctx, "cancel", id)
	return true, nil
}

// Answer implements taskwire.Backend.
func (s *tasks) Answer(ctx context.Context, r *mcp.Request, id string, responses jsonobj.Object) error {
	q := newRequest(ctx, r)
	if _, err := s.job(ctx, q, id); err != nil {
		return err
	}
	if !q.mayAnswer() {
		return mcp.Errorf(mcp.CodeInvalidParams,
			"the caller may not answer what a person is asked: the token lacks the scope deliver, or it is an agent's")
	}
	asked, err := s.questions.open(ctx, id)
	if err != nil {
		return internal(s.log, "reading the questions", err)
	}
	for _, one := range asked {
		if response := responses.Get(one.triggerID); response != nil {
			if err := s.questions.answer(ctx, q, one, response); err != nil {
				return err
			}
		}
	}
	return nil
}
