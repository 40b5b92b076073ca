package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

const resultsDescription = `Read the results of a run: the summary first, then the rollouts that failed, then the others, page by page. ` +
	`With waitSeconds it first waits so long for the end of the run.`

const resultsSchema = `{"type":"object","additionalProperties":false,"required":["runId"],"properties":{` +
	`"runId":{"type":"string"},` +
	`"cursor":{"description":"nextCursor of the page before","type":"string"},` +
	`"limit":{"description":"how many rollouts a page has; 20 if left out","type":"integer","minimum":1,"maximum":200},` +
	`"waitSeconds":{"type":"integer","minimum":0}}}`

const (
	// silentWait is how long a client waits at most if it gets no progress: many give up after a
	// minute.
	silentWait = 50 * time.Second
	// progressInterval is how often a waiting client is told that its call goes on.
	progressInterval = 5 * time.Second
	longestWait      = 24 * time.Hour
)

// results is the tool that reads the results of a run, and waits for its end.
type results struct {
	service *service.Service
	st      records
}

func (r *results) tools() []tool {
	return []tool{{name: "get_results", scope: access.Read, description: resultsDescription, schema: resultsSchema,
		annotations: reads, call: r.get}}
}

// resultsArguments are the arguments of get_results.
type resultsArguments struct {
	RunID       string `json:"runId"`
	Cursor      string `json:"cursor"`
	Limit       int    `json:"limit"`
	WaitSeconds *int   `json:"waitSeconds"`
}

// get is the tool.
func (r *results) get(ctx context.Context, q *request, arguments json.RawMessage) (any, error) {
	var a resultsArguments
	if err := errors.Join(read(arguments, &a), checkWait(a.WaitSeconds)); err != nil {
		return nil, err
	}
	limit, err := pageLimit(a.Limit)
	if err != nil {
		return nil, err
	}
	var from position
	if a.Cursor != "" {
		if from, err = parsePosition(a.Cursor); err != nil {
			return nil, err
		}
	}
	if a.WaitSeconds != nil {
		if err := r.await(ctx, q, a.RunID, time.Duration(*a.WaitSeconds)*time.Second, nil); err != nil {
			return nil, unknownRun(a.RunID, err)
		}
	}
	page, err := r.page(context.WithoutCancel(ctx), a.RunID, from, limit)
	return page, unknownRun(a.RunID, err)
}

// await waits until a run is final, the time is over, the server is closed or a question is due.
// Meanwhile it reports progress to the client, and asks the questions of the run, unless asking is
// nil.
func (r *results) await(ctx context.Context, q *request, runID string, limit time.Duration,
	asking *asking) (err error) {
	defer func() {
		if errors.Is(context.Cause(ctx), mcp.ErrShutdown) { // any error is due to the shutdown
			err = nil
		}
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	token := q.Meta().Get(mcp.MetaProgressToken)
	var tick <-chan time.Time
	if token != nil {
		ticker := time.NewTicker(progressInterval)
		defer ticker.Stop()
		tick = ticker.C
	}
	told := ""
	for n := 0; ; {
		changed := r.st.Changed(runID)
		run, err := r.service.Run(ctx, runID)
		if err != nil || run.Final() {
			return err
		}
		if now := standing(run.Counts); token != nil && now != told {
			_ = q.Notify(mcp.NoteProgress, progress(token, n, run)) // a client that has gone ends ctx
			told, n = now, n+1
		}
		var answered chan error
		if asking != nil {
			j, err := r.st.Job(ctx, runID)
			if err == nil {
				err = asking.update(ctx, j)
			}
			if err != nil || len(asking.due) > 0 {
				return err
			}
			answered = asking.answered
		}
		select {
		case <-changed:
		case err := <-answered:
			if asking.next(); err != nil {
				return err
			}
		case <-tick:
			told = ""
		case <-late.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// page reads a page of the results of a run.
func (r *results) page(ctx context.Context, runID string, from position, limit int) (out resultPage, err error) {
	var judged service.Summary
	if from == (position{}) {
		if judged, err = r.service.Summary(ctx, runID); err != nil {
			return out, err
		}
	}
	err = r.service.Report(ctx, runID, func(report *runner.Report) error {
		head := report.Head()
		out = resultPage{RunID: head.RunID, EvaluationSetName: head.EvaluationSetName, Status: head.Status, Final: head.Final,
			Summary: head.Summary,
			Verdict: judged.Verdict, Reason: judged.Reason, Failed: []rolloutResult{}}
		var next *position
		for at := from; next == nil; at = (position{others: true}) {
			if next, err = out.add(report, at, limit); err != nil || at.others {
				break
			}
		}
		if next != nil {
			out.NextCursor = next.String()
		}
		return err
	})
	if !out.Final {
		out.ComeBack = "the run goes on; call get_results with runId " + out.RunID + " and waitSeconds to wait for its end"
		if out.Status == schemas.Suspended {
			out.ComeBack = "the run is suspended, possibly for long; list_triggers says what it waits for, and get_results with runId " +
				out.RunID + " how it is"
		}
	}
	return out, err
}

func pageLimit(asked int) (int, error) {
	switch {
	case asked == 0:
		return defaultPage, nil
	case asked < 0 || asked > largestPage:
		return 0, &argumentError{fmt.Sprintf("limit: expected 1 to %d, got %d", largestPage, asked)}
	}
	return asked, nil
}

// checkWait checks the argument waitSeconds.
func checkWait(seconds *int) error {
	if most := int(longestWait / time.Second); seconds != nil && (*seconds < 0 || *seconds > most) {
		return &argumentError{fmt.Sprintf("waitSeconds: expected 0 to %d, got %d", most, *seconds)}
	}
	return nil
}

// progress reports the progress of a run, and how to find it again. The number of ended rollouts
// may stay the same, but progress must grow.
func progress(token json.RawMessage, n int, run service.Run) json.RawMessage {
	c := run.Counts
	ended := c.Completed + c.Faulted + c.Cancelled
	value := strconv.AppendFloat(nil, float64(ended)+1-1/float64(n+2), 'f', -1, 64)
	message := fmt.Sprintf("run %s: %s; it goes on if this call ends, and get_results has its results", run.ID,
		standing(c))
	return jsonobj.Object{
		{Key: "progressToken", Value: token}, {Key: "progress", Value: value},
		{Key: "total", Value: strconv.AppendInt(nil, int64(c.Total+1), 10)}, {Key: "message", Value: jsonobj.Quote(message)},
	}.JSON()
}

// standing describes the progress of a run.
func standing(c store.Counts) string {
	text := fmt.Sprintf("rollouts that have ended: %d of %d", c.Completed+c.Faulted+c.Cancelled, c.Total)
	if n := c.Suspended + c.Scoring; n > 0 {
		text += fmt.Sprintf(", %d wait", n)
	}
	return text
}
