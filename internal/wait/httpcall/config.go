package httpcall

import (
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// The usual intervals of polling.
const (
	DefaultInterval    = 5 * time.Second
	DefaultMaxInterval = time.Minute
)

// Request is one HTTP request. URL and Headers may contain ${VAR}, and URL placeholders such as
// {itemKey}. Body is a JSON template whose strings "{inputArguments}", "{triggerId}" and so on are
// replaced by JSON values.
type Request struct {
	Method  string            `json:"method,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
}

// AddVariables adds the names of the request's ${VAR}s to a set.
func (q *Request) AddVariables(into map[string]bool) {
	template.AddVariables(q.URL, into)
	for _, v := range q.Headers {
		template.AddVariables(v, into)
	}
	template.AddBodyVariables(q.Body, into)
}

// Polling is how often a job is asked after: at first after Interval, then more and more rarely up
// to MaxInterval.
type Polling struct {
	Interval    wait.Duration `json:"interval,omitzero"`
	MaxInterval wait.Duration `json:"maxInterval,omitzero"`
}

// Next says when to ask again: when the server says so, else after the interval, which doubles with
// every check up to the longest, with full jitter between the interval and that. It is at most as
// long as the wait so far, or two intervals if that is longer, so that the end of a job is noticed
// before twice its time is over.
func (c Polling) Next(checks int, waited, retryAfter time.Duration, rand func() float64) time.Duration {
	if retryAfter > 0 {
		return retryAfter
	}
	least, most := time.Duration(c.Interval), time.Duration(c.MaxInterval)
	if least <= 0 {
		least = DefaultInterval
	}
	if most < least {
		most = max(DefaultMaxInterval, least)
	}
	most = min(most, max(2*least, waited))
	return least + time.Duration(rand()*float64(retry.Backoff(least, most, checks+1)-least))
}
