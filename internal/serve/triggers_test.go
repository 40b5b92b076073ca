package serve_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/webhook"
)

func TestTriggersAreAnsweredFailedAndCancelled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	for _, c := range []struct{ how, body, ends string }{
		{"deliver", `{"payload": {"rows": 3}}`, "successful"}, {"fail", `{"message": "out of paper"}`, "faulted"}, {"cancel", "", "faulted"},
	} {
		started := w.start("ask")
		w.reaches(started.RunID, "suspended")
		var page struct {
			Triggers   []struct{ TriggerID, RolloutID string } `json:"triggers"`
			NextCursor *string                                 `json:"nextCursor"`
		}
		w.must(http.StatusOK, "GET", "/v1/triggers?limit=1&runId="+started.RunID, "").decode(t, &page)
		if len(page.Triggers) != 1 || page.NextCursor == nil {
			t.Fatalf("%+v", page)
		}
		path := "/v1/triggers/" + page.Triggers[0].TriggerID
		var got struct{ Disposition, TriggerID, RunID, RolloutID string }
		w.must(http.StatusAccepted, "POST", path+"/"+c.how, c.body).decode(t, &got)
		if got.Disposition != "accepted" || got.RunID != started.RunID || got.RolloutID != page.Triggers[0].RolloutID {
			t.Errorf("%s: %+v", c.how, got)
		}
		if again := w.send("POST", path+"/"+c.how, c.body); again.StatusCode != http.StatusOK && again.StatusCode != http.StatusGone {
			t.Errorf("%s again: %d %s", c.how, again.StatusCode, again.body)
		}
		w.reaches(started.RunID, c.ends)
		if a := w.must(http.StatusOK, "GET", path, ""); !strings.Contains(a.body, `"disposition":"accepted"`) || !strings.Contains(a.body, `"by":"token `) {
			t.Errorf("%s: %s", c.how, a.body)
		}
		w.must(http.StatusOK, "GET", "/v1/triggers?cursor="+*page.NextCursor, "").decode(t, &page)
		if len(page.Triggers) != 0 {
			t.Errorf("%s: %+v", c.how, page)
		}
		if n := strings.Count(w.audit.String(), `"action":"deliver","object":"`+strings.TrimPrefix(path, "/v1/triggers/")); n != 2 {
			t.Errorf("%d lines in the audit log:\n%s", n, w.audit)
		}
	}
}

func TestALateDeliveryIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	started := w.start("ask")
	w.reaches(started.RunID, "suspended")
	var page struct{ Triggers []struct{ TriggerID string } }
	w.must(http.StatusOK, "GET", "/v1/triggers?runId="+started.RunID, "").decode(t, &page)
	id := page.Triggers[0].TriggerID
	w.must(http.StatusOK, "POST", "/v1/runs/"+started.RunID+"/cancel", "")
	w.must(http.StatusGone, "POST", "/v1/triggers/"+id+"/deliver", `{"payload": 1}`)
	w.must(http.StatusGone, "POST", "/v1/triggers/"+id+"/fail", `{"message": "no"}`)
	w.must(http.StatusGone, "POST", "/v1/triggers/"+id+"/cancel", "")
}

func TestTheURLOfAWebhookIsItsCredential(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	w.execute()
	key, err := webhook.LoadKey(w.Store().Dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tail, body string }{{"", `{"rows": 3}`}, {"/fail", `{"message": "no"}`}} {
		run := w.start("ask")
		w.reaches(run.RunID, "suspended")
		url, err := key.URL("", w.triggerOf(run.RunID))
		if err != nil {
			t.Fatal(err)
		}
		none := []string{"Authorization", ""}
		w.must(http.StatusNotFound, "POST", "/v1/hooks/whpx"+c.tail, c.body, none...)
		w.must(http.StatusBadRequest, "POST", url+c.tail, `{`, none...)
		if a := w.huge(url + c.tail); a.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a huge body: %d", a.StatusCode)
		}
		w.must(http.StatusAccepted, "POST", url+c.tail, c.body, none...)
		w.must(http.StatusOK, "POST", url+c.tail, c.body, none...)
		run = w.start("ask")
		w.reaches(run.RunID, "suspended")
		if url, err = key.URL("", w.triggerOf(run.RunID)); err != nil {
			t.Fatal(err)
		}
		w.must(http.StatusOK, "POST", "/v1/runs/"+run.RunID+"/cancel", "")
		w.must(http.StatusGone, "POST", url+c.tail, c.body, none...)
		if strings.Contains(w.audit.String()+w.log.String(), strings.TrimPrefix(url, webhook.Path)) {
			t.Error("the URL was written down")
		}
	}
}
