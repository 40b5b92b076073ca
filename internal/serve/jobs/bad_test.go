package jobs_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

var moment = regexp.MustCompile(`"timestamp":"[^"]+"`)

// What is answered to wrong requests is in testdata/bad.txt: the request, perhaps headers (@), and
// the answer. {job} is a job that nobody executes, {ended} one that was cancelled, {rollout} a
// rollout.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const path = "testdata/bad.txt"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	id, ended := w.submit("done", ""), w.submit("done", "")
	w.send("POST", "/jobs/"+ended+"/cancel", "")
	used := w.submit("done", "", "Idempotency-Key", "used")
	rollouts, err := w.service.Store().RolloutIDs(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	names := strings.NewReplacer("{job}", id, "{ended}", ended, "{rollout}", rollouts[0])
	back := strings.NewReplacer(id, "{job}", ended, "{ended}", rollouts[0], "{rollout}", used, "{used}")
	var out strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		var request string
		var header []string
		for line := range strings.Lines(paragraph) {
			line = strings.TrimRight(line, "\n")
			switch {
			case strings.HasPrefix(line, "> "):
				request = line[2:]
				fmt.Fprintln(&out, line)
			case strings.HasPrefix(line, "@ "):
				name, value, _ := strings.Cut(line[2:], ": ")
				header = append(header, name, value)
				fmt.Fprintln(&out, line)
			}
		}
		parts := append(strings.SplitN(names.Replace(request), " ", 3), "")
		r := w.send(parts[0], parts[1], parts[2], header...)
		fmt.Fprintf(&out, "< %d %s\n\n", r.status, back.Replace(moment.ReplaceAllString(r.body, `"timestamp":"…"`)))
	}
	got := strings.TrimSpace(out.String()) + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != string(data) {
		t.Errorf("the answers are others than those in %s (-update writes them):\n%s", path, got)
	}
	if jobs, err := w.service.Store().Runs(t.Context()); err != nil || len(jobs) != 3 {
		t.Errorf("%d runs were made, %v", len(jobs), err)
	}
}

func TestABodyThatIsTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.send("POST", "/jobs", `{"capability":"`+strings.Repeat("x", 5<<20)+`"}`)
	if r.status != http.StatusRequestEntityTooLarge || !strings.Contains(r.body, `"error":"the request is too large"`) {
		t.Errorf("%d %.200s", r.status, r.body)
	}
}

func TestWhatIsTooLargeForAJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.submit("done", "")
	if r := w.post(id, `{"type":"x","payload":"`+strings.Repeat("x", 256<<10)+`"}`); r.status != http.StatusRequestEntityTooLarge || !strings.Contains(r.body, "an event has at most 262144 bytes") {
		t.Errorf("%+v", r)
	}
	if n := len(w.log(id, "").Events); n != 0 {
		t.Errorf("%d events", n)
	}
	r := w.send("POST", "/jobs", `{"capability":"done","submitted_by":"x","submitted_payload":{"inputs":{"x":"`+strings.Repeat("x", 1<<20)+`"}}}`)
	if r.status != http.StatusRequestEntityTooLarge || !strings.Contains(r.body, "submitted_payload has at most 1048576 bytes") {
		t.Errorf("%d %.200s", r.status, r.body)
	}
}

// Pages end before they are too large, and all of them together have everything.
func TestPagesAreBounded(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	w := newWorld(t)
	text := strings.Repeat("x", 1000<<10)
	var ids []string
	for range 10 {
		var j job
		w.send("POST", "/jobs", `{"capability":"done","submitted_by":"x","submitted_payload":{"inputs":{"x":"`+text+`"}}}`).decode(t, &j)
		ids = append(ids, j.ID)
	}
	listed, cursor := 0, ""
	for pages := 0; pages == 0 || cursor != "" && pages < 5; pages++ {
		r := w.send("GET", "/jobs?limit=200&cursor="+cursor, "")
		var page struct {
			Jobs []job   `json:"jobs"`
			Next *string `json:"next_cursor"`
		}
		r.decode(t, &page)
		if len(r.body) > 9<<20 {
			t.Errorf("a page of %d bytes", len(r.body))
		}
		listed += len(page.Jobs)
		if cursor = ""; page.Next != nil {
			cursor = *page.Next
		}
	}
	if listed != len(ids) {
		t.Errorf("%d of %d jobs are listed", listed, len(ids))
	}
}

// A body that ends before its length is a wrong request, and starts nothing.
func TestAHalfSentBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"capability":"done","submitted_by":"x","submitted_payload":{}}`
	if _, err := fmt.Fprintf(conn, "POST /jobs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body)+1, body); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(conn); err != nil {
		t.Fatal(err)
	}
	if runs, err := w.service.Store().Runs(t.Context()); err != nil || len(runs) != 0 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}
