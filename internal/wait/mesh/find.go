package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

const (
	// clockSkew is how far the clocks of evalrun and a registry may be apart.
	clockSkew = 15 * time.Minute
	// pageSize is how many jobs are asked for at once, the most that a registry gives. maxPages is
	// how many pages are read of those that were submitted since the wait began.
	pageSize, maxPages = 200, 50
)

// Find implements wait.Source. It looks through the jobs of the capability since the wait began for
// one that was submitted by the trigger, or with its id in the payload.
func (s *source) Find(ctx context.Context, j wait.Job) (string, bool, error) {
	since := j.Since.Add(-clockSkew).Unix()
	for cursor, pages := "", 0; pages < maxPages; pages++ {
		path := fmt.Sprintf(
			"/jobs?capability=%s&submitted_since=%d&limit=%d", url.QueryEscape(s.capability(j.Spec)), max(since, 0), pageSize)
		if cursor != "" {
			path += "&cursor=" + url.QueryEscape(cursor)
		}
		a, err := s.Do(ctx, s.call(j, http.MethodGet, path, nil))
		switch {
		case err != nil:
			return "", false, s.Retry(j, a, err)
		case !a.OK():
			return "", false, s.Retry(j, a, a.Err())
		}
		var page struct {
			Jobs       []row   `json:"jobs"`
			NextCursor *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(a.Body, &page); err != nil || page.Jobs == nil {
			return "", false, s.Retry(j, a, fmt.Errorf(
				"%s answered something that is not a list of jobs: %s", a.What, jsonvalue.Excerpt(a.Body)))
		}
		for _, r := range page.Jobs {
			if r.ID != "" && s.startedBy(j, r) {
				return r.ID, true, nil
			}
		}
		if page.NextCursor == nil || *page.NextCursor == "" {
			return "", false, nil
		}
		cursor = *page.NextCursor
	}
	return "", false, &wait.RetryError{After: time.Minute, Err: fmt.Errorf(
		"the registry has more than %d jobs of %q since %s; among them the one of this trigger was not found",
		pageSize*maxPages, s.capability(j.Spec), time.Unix(since, 0).UTC().Format(time.RFC3339))}
}

// startedBy tells whether a job is that of a trigger. Something between evalrun and the registry
// may have changed who has submitted it.
func (s *source) startedBy(j wait.Job, r row) bool {
	if r.SubmittedBy == submittedBy(j) {
		return true
	}
	payload, _ := jsonvalue.ParseObject(r.SubmittedPayload)
	name := s.config.TokenMember()
	for _, m := range payload {
		if name != "" && m.Key == name && jsonvalue.KindOf(m.Value) == '"' {
			return jsonvalue.String(m.Value) == j.TriggerID
		}
	}
	return false
}
