package web

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/sse"
)

// mostTold is the most questions in an event.
const mostTold = 1000

// inboxPause is the time for which changes are gathered.
const inboxPause = 250 * time.Millisecond

// openQuestions has the triggers of the open questions. The trigger that has waited longest stands
// for its question.
type openQuestions struct {
	Open []string `json:"open"`
	// Asked are the digests of the questions, at the places of their triggers.
	Asked []string `json:"asked"`
	// Complete is set if there are no others.
	Complete bool `json:"complete"`
}

// inboxLive streams the open questions whenever they change: those that the inbox shows with the
// same filters.
func (p *site) inboxLive(w http.ResponseWriter, r *http.Request) error {
	return p.followInbox(r, p.streams.answerWith(w))
}

func (p *site) followInbox(r *http.Request, open opener) error {
	s, err := open(&p.streams.inboxes, errManyInboxes)
	if err != nil {
		return err
	}
	defer s.Close()
	var told []string
	for first := true; ; first = false {
		changed := p.o.Service.Changed("")
		all, err := p.questions(r.Context(), p.o.Now(), r.URL.Query().Get("run"))
		if _, err := unreadable(err); err != nil {
			return nil //nolint:nilerr // the browser comes again
		}
		text := strings.TrimSpace(r.URL.Query().Get("q"))
		all = slices.DeleteFunc(all, func(one *question) bool { return !one.matches(text) })
		now := openQuestions{
			Open: make([]string, 0, len(all)), Asked: make([]string, 0, len(all)), Complete: len(all) <= mostTold,
		}
		for _, q := range all[:min(len(all), mostTold)] {
			now.Open, now.Asked = append(now.Open, q.TriggerID), append(now.Asked, q.Digest)
		}
		if first || !slices.Equal(told, now.Open) {
			told = now.Open
			data, err := json.Marshal(now)
			if err != nil {
				return err
			}
			if s.Send(sse.Event{Name: "open-questions", Data: data}) != nil {
				return nil
			}
		}
		if !s.Wait(r.Context(), changed, inboxPause) {
			return nil
		}
	}
}
