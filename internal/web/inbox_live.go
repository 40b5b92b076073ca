package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxInboxes is how many browsers are told of changes of the inbox at once. The page of another one
// can be read all the same.
const maxInboxes = 256

// mostTold is how many questions are told of.
const mostTold = 1000

const (
	// inboxPause is how long changes are gathered, inboxPing how often a stream says that it is there.
	inboxPause = 250 * time.Millisecond
	inboxPing  = 15 * time.Second
)

// openQuestions are the triggers of the questions that are open, each question by the one that has
// waited longest.
type openQuestions struct {
	Open []string `json:"open"`
	// Asked are the digests of the questions, at the places of their triggers.
	Asked []string `json:"asked"`
	// Complete says that there are no others.
	Complete bool `json:"complete"`
}

// inboxLive streams which questions are open, whenever that changes: those that the inbox shows with the
// same filters.
func (p *Pages) inboxLive(w http.ResponseWriter, r *http.Request) error {
	select {
	case p.inboxes <- struct{}{}:
		defer func() { <-p.inboxes }()
	default:
		return &pageError{http.StatusServiceUnavailable, "too many browsers look at the inbox; load the page again to see what is new"}
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	stream := http.NewResponseController(w)
	_ = stream.SetWriteDeadline(time.Time{}) // the server's deadline is for answers that end
	ping := time.NewTicker(inboxPing)
	defer ping.Stop()
	var told []string
	for first := true; ; first = false {
		changed := p.o.Service.Store().Changed("")
		all, err := p.questions(r.Context(), p.o.Now(), r.URL.Query().Get("run"))
		if _, err := unreadable(err); err != nil {
			return nil //nolint:nilerr // the browser comes again
		}
		text := strings.TrimSpace(r.URL.Query().Get("q"))
		all = slices.DeleteFunc(all, func(one *question) bool { return !one.matches(text) })
		now := openQuestions{Open: make([]string, 0, len(all)), Asked: make([]string, 0, len(all)), Complete: len(all) <= mostTold}
		for _, q := range all[:min(len(all), mostTold)] {
			now.Open, now.Asked = append(now.Open, q.TriggerID), append(now.Asked, q.Digest)
		}
		if first || !slices.Equal(told, now.Open) {
			told = now.Open
			data, err := json.Marshal(now)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "retry: 2000\nevent: open-questions\ndata: %s\n\n", data); err != nil || stream.Flush() != nil {
				return nil
			}
		}
	wait:
		for {
			select {
			case <-changed:
				break wait
			case <-ping.C:
				if _, err := fmt.Fprint(w, ": ping\n\n"); err != nil || stream.Flush() != nil {
					return nil
				}
			case <-p.o.Draining:
				return nil
			case <-r.Context().Done():
				return nil
			}
		}
		select {
		case <-time.After(inboxPause):
		case <-r.Context().Done():
			return nil
		}
	}
}

// outcome says of a trigger what has become of it, for the script.
func (a answers) outcome(w http.ResponseWriter, r *http.Request) error {
	t, err := a.o.Service.Trigger(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if t.Open && !wantsJSON(r) {
		http.Redirect(w, r, "/inbox#q-"+t.TriggerID, http.StatusSeeOther)
		return nil
	}
	if t.Open {
		return a.tell(w, r, http.StatusOK, answered{Outcome: "open"})
	}
	return a.tell(w, r, http.StatusOK, a.ended(r, t, "Answered by %s, at %s.")) // nothing was entered here
}
