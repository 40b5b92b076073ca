package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

const (
	// firstPoll is how often a client is told to ask for a young task, lastPoll for an old one.
	firstPoll = time.Second
	lastPoll  = 30 * time.Second
	// taskPage is how many tasks a page has.
	taskPage = 100
)

// keepJobs are the sources whose jobs go on when a run is cancelled, as with evalrun cancel.
var keepJobs = []string{wait.SourceExec}

// job finds the job that is a caller's task.
func (s *Server) job(ctx context.Context, q *request, id string) (store.Job, error) {
	j, err := s.st.Job(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && j.SubmittedBy != owner(q.caller):
		return j, taskwire.NotFound()
	case err != nil:
		return j, s.internal("reading the task", err)
	}
	return j, nil
}

// task is a caller's task with everything that belongs to it.
func (s *Server) task(ctx context.Context, q *request, id string) (taskwire.Task, error) {
	j, err := s.job(ctx, q, id)
	if err != nil {
		return taskwire.Task{}, err
	}
	t, err := s.view(ctx, q, j)
	if err == nil && (j.Status == store.JobCompleted || j.Status == store.JobFailed) {
		t.Result, err = s.outcome(ctx, j)
	}
	if err != nil {
		return t, s.internal("reading the task", err)
	}
	return t, nil
}

// view is a task without its result. A question makes it input_required for who may answer it; to
// everybody else it works, as they can do nothing about it.
func (s *Server) view(ctx context.Context, q *request, j store.Job) (t taskwire.Task, err error) {
	t = taskwire.Task{ID: j.ID, Status: string(j.Status), CreatedAt: j.SubmittedAt, UpdatedAt: j.EndedAt}
	t.Poll = min(max(s.o.Now().Sub(j.SubmittedAt)/10, firstPoll), lastPoll).Round(time.Millisecond)
	if j.Status.IsTerminal() {
		t.Message = j.Error
		return t, nil
	}
	run, err := s.o.Service.Run(ctx, j.ID)
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
	asked, err := s.questions(ctx, j.ID)
	if err != nil {
		return t, err
	}
	if len(asked) > 0 { // else it has just been answered
		t.Message = fmt.Sprintf("a person is asked: %s (trigger %s, to be answered with deliver)", asked[0].message, asked[0].triggerID)
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

// outcome is the result of the call that has become a task which is completed or has failed.
func (s *Server) outcome(ctx context.Context, j store.Job) (json.RawMessage, error) {
	page, err := s.page(ctx, j.ID, position{}, defaultPage)
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

// tasks is the taskwire.Backend.
type tasks struct{ s *Server }

// Task implements taskwire.Backend.
func (b tasks) Task(ctx context.Context, r *mcp.Request, id string) (taskwire.Task, error) {
	q := newRequest(ctx, r)
	t, err := b.s.task(ctx, q, id)
	if err == nil && q.session != nil && t.Result == nil {
		q.session.watch(id)
	}
	return t, err
}

// Tasks implements taskwire.Backend: the newest come first.
func (b tasks) Tasks(ctx context.Context, r *mcp.Request, cursor *string) (page []taskwire.Task, next string, err error) {
	q := newRequest(ctx, r)
	f := store.JobFilter{SubmittedBy: owner(q.caller), Limit: taskPage + 1}
	if cursor != nil {
		var ok bool
		if f.BeforeTime, f.BeforeID, ok = readCursor(*cursor); !ok {
			return nil, "", mcp.Errorf(mcp.CodeInvalidParams, "Invalid cursor")
		}
	}
	jobs, err := b.s.st.ListJobs(ctx, f)
	if err != nil {
		return nil, "", b.s.internal("listing the tasks", err)
	}
	if len(jobs) > taskPage {
		jobs = jobs[:taskPage]
		next = writeCursor(jobs[taskPage-1])
	}
	for _, j := range jobs {
		t, err := b.s.view(ctx, q, j)
		if err != nil {
			return nil, "", b.s.internal("listing the tasks", err)
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
func (b tasks) Await(ctx context.Context, r *mcp.Request, id string) (taskwire.Task, error) {
	q := newRequest(ctx, r)
	asking := b.s.newAsking(q)
	defer asking.end()
	for {
		changed := b.s.st.Changed(id)
		j, err := b.s.job(ctx, q, id)
		if err != nil || j.Status.IsTerminal() {
			if err != nil {
				return taskwire.Task{}, err
			}
			return b.s.task(ctx, q, id)
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
func (b tasks) Cancel(ctx context.Context, r *mcp.Request, id string) (t taskwire.Task, did bool, err error) {
	q := newRequest(ctx, r)
	j, err := b.s.job(ctx, q, id)
	if err != nil {
		return t, false, err
	}
	did, err = b.s.cancel(ctx, j.ID, "by its client")
	if err != nil {
		return t, false, b.s.internal("cancelling the task", err)
	}
	t, err = b.s.task(ctx, q, id)
	return t, did, err
}

// cancel cancels a job and its run; did is false if it had ended.
func (s *Server) cancel(ctx context.Context, id, reason string) (did bool, err error) {
	_, err = s.st.CancelJob(ctx, id, reason, 0, keepJobs...)
	switch {
	case errors.Is(err, store.ErrJobEnded):
		return false, nil
	case err != nil:
		return false, err
	}
	s.o.Service.Runner().Wake(id)
	if s.o.Changed != nil {
		s.o.Changed(ctx, "cancel", id)
	}
	return true, nil
}

// Answer implements taskwire.Backend.
func (b tasks) Answer(ctx context.Context, r *mcp.Request, id string, responses jsonobj.Object) error {
	q := newRequest(ctx, r)
	if _, err := b.s.job(ctx, q, id); err != nil {
		return err
	}
	if !q.mayAnswer() {
		return mcp.Errorf(mcp.CodeInvalidParams, "the caller may not answer what a person is asked: the token lacks the scope deliver, or it is an agent's")
	}
	asked, err := b.s.questions(ctx, id)
	if err != nil {
		return b.s.internal("reading the questions", err)
	}
	for _, one := range asked {
		if response := responses.Get(one.triggerID); response != nil {
			if err := b.s.answer(ctx, q, one, response); err != nil {
				return err
			}
		}
	}
	return nil
}
