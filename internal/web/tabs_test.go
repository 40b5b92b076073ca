package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// W2: what all tabs of a browser follow comes over one connection, each event with the number of its
// stream; one that cannot be followed says why, and the others go on.
func TestTheStreamsOfAllTabsAreOneConnection(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	q := url.Values{"of": {"/runs/" + d.runID + "/live", "/inbox/live?q=room", "/runs/nobody/live", "/runs/x/rollouts/y", "/live"}, "since": {"0", "", "7", "", ""}}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+"/tabs?"+q.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	next := func(want map[string]string) {
		t.Helper()
		event := ""
		for len(want) > 0 {
			text := strings.TrimSuffix(line(t, a.Body), "\n")
			if name, ok := strings.CutPrefix(text, "event: "); ok {
				event = name
			}
			data, ok := strings.CutPrefix(text, "data: ")
			if part, wanted := want[event]; ok && wanted {
				if !strings.Contains(data, part) {
					t.Errorf("%s tells %s", event, data)
				}
				delete(want, event)
			}
		}
	}
	next(map[string]string{"0 patch": `"n-suspended":"3"`, "1 open-questions": `"complete":true`, "2 end": "there is no run", "3 end": "nothing with this id"})
	_, inbox := d.do("GET", "/inbox", nil)
	asked := d.trigger("a").TriggerID
	if !strings.Contains(inbox, asked) { // both ask the same: the one that has waited longest has the card
		asked = d.trigger("same").TriggerID
	}
	if status, body := d.do("POST", "/triggers/"+asked+"/answer", d.form(inbox, asked, "verb", "approve", "confirm", "1"), "Accept", "application/json"); status != http.StatusOK {
		t.Fatal(status, body)
	}
	d.work()
	next(map[string]string{"0 patch": `"n-suspended":"2"`, "4 patch": "Something has changed"})
	for _, query := range []string{"", "?of=/live", "?of=/live&since=0" + strings.Repeat("&of=/live&since=0", 64)} {
		if status, _ := d.do("GET", "/tabs"+query, nil); status != http.StatusUnprocessableEntity {
			t.Errorf("%.30s is answered with %d", query, status)
		}
	}
}

// W2: a page of a run that has ended asks once, and follows nothing.
func TestWhatHasChangedIsAskedOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	if status, body := d.do("GET", "/runs/"+d.runID+"/live?once", nil); status != http.StatusOK || !strings.Contains(body, `"whole":true`) || !strings.Contains(body, `"n-suspended":"3"`) {
		t.Error(status, body)
	}
}
