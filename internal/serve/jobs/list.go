package jobs

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/store"
)

// Limits on the number of jobs in one answer.
const (
	defaultJobs = 50
	maxJobs     = 200
)

var statuses = []store.JobStatus{store.JobWorking, store.JobInputRequired, store.JobCompleted, store.JobFailed,
	store.JobCancelled}

// list returns the submitted jobs, the newest first.
func (h *handler) list(r *http.Request) (response, error) {
	f, err := jobFilter(r.URL.Query())
	if err != nil {
		return response{}, err
	}
	limit := f.Limit
	f.Limit++ // one more tells whether there is a next page
	found, err := h.st.ListJobs(r.Context(), f)
	if err != nil {
		return response{}, err
	}
	var next *string
	if n := pageOf(found, limit); n < len(found) {
		found = found[:n]
		next = text(cursorOf(found[n-1]))
	}
	rows := make([]row, 0, len(found))
	for _, j := range found {
		result, err := h.results.of(r.Context(), j)
		if err != nil {
			return response{}, err
		}
		one, err := h.row(r.Context(), j, result)
		if err != nil {
			return response{}, err
		}
		rows = append(rows, one)
	}
	return response{http.StatusOK, struct {
		Jobs []row   `json:"jobs"`
		Next *string `json:"next_cursor"`
	}{rows, next}}, nil
}

// pageOf is how many of the jobs are on a page: at most limit, as many as fit into store.MaxPage,
// and at least one.
func pageOf(found []store.Job, limit int) int {
	size := 0
	for i, j := range found {
		if size += j.Size(); i == limit || i > 0 && size > store.MaxPage {
			return i
		}
	}
	return len(found)
}

func jobFilter(q url.Values) (f store.JobFilter, err error) {
	f = store.JobFilter{Capability: q.Get("capability"), Owner: q.Get("owner_instance_id"), Limit: defaultJobs}
	if value := q.Get("status"); value != "" {
		for one := range strings.SplitSeq(value, ",") {
			status := store.JobStatus(strings.TrimSpace(one))
			if !slices.Contains(statuses, status) {
				return f,
					badRequest(fmt.Sprintf(
						"invalid status %q: must be one of working,input_required,completed,failed,cancelled", status))
			}
			f.Statuses = append(f.Statuses, status)
		}
	}
	if q.Has("limit") {
		n, err := number(q, "limit")
		if err != nil {
			return f, err
		}
		if n < 1 || n > maxJobs {
			return f, badRequest(fmt.Sprintf("limit must be in [1, %d], got %d", maxJobs, n))
		}
		f.Limit = int(n)
	}
	if q.Has("submitted_since") {
		n, err := number(q, "submitted_since")
		if err != nil {
			return f, err
		}
		f.Since = time.Unix(min(max(n, 0), maxSeconds), 0)
	}
	if value := q.Get("cursor"); value != "" {
		if f.BeforeTime, f.BeforeID, err = readCursor(value); err != nil {
			return f, badRequest("ListJobs: invalid cursor: " + err.Error())
		}
	}
	return f, nil
}

// number reads a parameter that is a whole number. The error message is the registry's.
func number(q url.Values, name string) (int64, error) {
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return 0, &bindError{fmt.Sprintf("Invalid format for parameter %s: error binding string parameter: %v", name, err)}
	}
	return n, nil
}

// cursorOf is the place of a job in the list, in the registry's form.
func cursorOf(j store.Job) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d:%s", j.SubmittedAt.UnixNano(), j.ID))
}

func readCursor(value string) (at time.Time, id string, err error) {
	data, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return at, "", err
	}
	nanos, id, ok := strings.Cut(string(data), ":")
	n, err := strconv.ParseInt(nanos, 10, 64)
	if !ok || err != nil || id == "" {
		return at, "", fmt.Errorf("malformed cursor payload")
	}
	return time.Unix(0, n), id, nil
}
