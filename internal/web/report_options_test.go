package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// reportDetail is what a report has of a rollout.
type reportDetail struct {
	ID, Why    string
	Evaluators []struct{ Name, Score, Said string }
	Texts      [][2]string
}

func (d *reportDetail) text(title string) string {
	for _, one := range d.Texts {
		if one[0] == title {
			return one[1]
		}
	}
	return ""
}

// report is the report of the site's run with its details, which are at most a block.
func (s *site) report(o web.ReportOptions) (page string, details []*reportDetail) {
	s.Helper()
	var out bytes.Buffer
	if err := s.store.Report(s.Context(), s.runID, runner.Variables{}, func(r *runner.Report) error { return web.WriteReport(&out, r, o) }); err != nil {
		s.Fatal(err)
	}
	unpack(s.TB, out.String(), "d0", &details)
	if len(details) != len(s.all) {
		s.Fatalf("%d details of %d rollouts", len(details), len(s.all))
	}
	return out.String(), details
}

// W11: a report has what a coding agent has said and called, of each segment the attempt that counted.
func TestAReportHasTheTrajectory(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "ask")
	one := s.rollout("ask")
	folder := filepath.Join("runs", s.runID, "rollouts", one.RolloutID)
	var logs []string
	for _, attempt := range []string{"1.1", "1.2"} {
		at := *one.StartedAt
		if err := os.MkdirAll(filepath.Join(s.store.Dir(), folder, "segments", attempt), 0o700); err != nil {
			t.Fatal(err)
		}
		tr := record.OpenTrajectory(filepath.Join(s.store.Dir(), folder, "segments", attempt), nil, func() time.Time { at = at.Add(time.Second); return at })
		tr.Add(record.EventPrompt, "s", "Do it, attempt "+attempt+evil, nil)
		for i := range 300 {
			tr.Call("s", record.Call{ID: strconv.Itoa(i), Name: "search", Server: "web", Status: "completed", Input: json.RawMessage(fmt.Sprintf(`{"q":%d}`, i)), Output: json.RawMessage(`"found\nmore"`), StartedAt: at})
		}
		tr.Say(record.EventMessage, "s", "All done.")
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, filepath.ToSlash(filepath.Join(folder, "segments", attempt, record.FileTrajectory)))
	}
	if err := s.store.Report(t.Context(), s.runID, runner.Variables{}, func(r *runner.Report) error {
		return r.Rollouts(func(rollout *schemas.Rollout) error {
			if rollout.RolloutID != one.RolloutID {
				return nil
			}
			rollout.Logs = logs
			short, whole := web.TrajectoryText(web.ReportOptions{}, r, rollout), web.TrajectoryText(web.ReportOptions{Full: true}, r, rollout)
			for _, want := range []string{"prompt: Do it, attempt 1.2", "web: search (completed) {\"q\":7}\n          → found\n            more", "… 102 steps more (--full has them)", "agent: All done."} {
				if !strings.Contains(short, want) {
					t.Errorf("%q is missing", want)
				}
			}
			if strings.Contains(short, "attempt 1.1") || strings.Contains(short, `{"q":150}`) || !strings.Contains(whole, `{"q":150}`) {
				t.Error("what is left out is not what should be")
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	_, details := s.report(web.ReportOptions{})
	for _, d := range details {
		if text := d.text("Trajectory"); text != "" { // no segment of the store names the file
			t.Errorf("a trajectory that no attempt has left: %.80s", text)
		}
	}
}

// A value of more than 4 KiB is cut, and says how much is missing; --full leaves it whole. Both say the
// same up to there.
func TestReportFull(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 1, "large")
	_, cut := s.report(web.ReportOptions{})
	_, full := s.report(web.ReportOptions{Full: true})
	short, whole := cut[0].text("Output"), full[0].text("Output")
	kept, rest, ok := strings.Cut(short, "\n… and ")
	missing, err := strconv.Atoi(strings.TrimSuffix(rest, " bytes more (--full has them)"))
	if !ok || err != nil || len(kept)+missing != len(whole) || !strings.HasPrefix(whole, kept) || len(kept) > 4<<10 || len(whole) < 5_000_000 {
		t.Errorf("%d bytes and %d more of %d; %v", len(kept), missing, len(whole), err)
	}
}

// --failed-only has details of every rollout that has not passed, and of no other. The list and its
// numbers are those of the whole run.
func TestReportFailedOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, 4, "account", "wrong", "fault", "ask")
	page, details := s.report(web.ReportOptions{FailedOnly: true})
	_, all := s.report(web.ReportOptions{})
	for i, one := range s.all {
		passed := strings.HasPrefix(one.EvaluationID, "account")
		if (details[i] == nil) != passed {
			t.Errorf("%s: %+v", one.EvaluationID, details[i])
		}
		if !passed && fmt.Sprint(*details[i]) != fmt.Sprint(*all[i]) {
			t.Errorf("%s is %+v, in the whole report %+v", one.EvaluationID, details[i], all[i])
		}
	}
	if !strings.Contains(page, "It has details only of rollouts that have not passed, or in which an evaluator failed.") || !strings.Contains(page, fmt.Sprintf("%d of %[1]d rollouts", len(s.all))) {
		t.Error("the page does not say what is missing, or not all of the run")
	}
}

// --redact-io leaves out everything that an agent was given or has made, and what evaluators say of it,
// wherever that stands. Scores, times and categories of faults stay.
func TestReportRedactIO(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 4, "account", "wrong", "fault", "ask")
	page, details := s.report(web.ReportOptions{RedactIO: true})
	var columns any
	unpack(t, page, "columns", &columns)
	data, err := json.Marshal([]any{columns, details})
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(page, `<script type="application/octet-stream"`)
	for what, text := range map[string]string{"an output": "billing", "an expected output": "expected (", "a log": "RuntimeError", "a question": "Refund?", "its data": "amount"} {
		if strings.Contains(before, text) || strings.Contains(string(data), text) {
			t.Errorf("%s is in it: %q", what, text)
		}
	}
	for i, one := range s.all {
		if d := details[i]; d.ID != one.RolloutID || d.text("Clocks") == "" || d.text("Input")+d.text("Expected output")+d.text("Output") != "" || one.Error != nil && d.Why != one.Error.Category {
			t.Errorf("%s: %+v", one.EvaluationID, d)
		}
	}
	if !strings.Contains(page, "What the agents were given and have made was left out of this file.") {
		t.Error("the page does not say so")
	}
}

// The report of a run that waits says for what, as its page does; what a question is about is a part of
// what agents have made.
func TestAReportSaysWhatIsWaitedFor(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 4, "account", "ask")
	asked := 0
	for _, one := range s.all {
		if one.Status == "suspended" {
			asked++
		}
	}
	for _, c := range []struct {
		options web.ReportOptions
		want    string
	}{
		{web.ReportOptions{}, fmt.Sprintf("<li class=\"u\">question Refund?: %d rollouts</li>", asked)},
		{web.ReportOptions{RedactIO: true}, fmt.Sprintf("<li class=\"u\">question: %d rollouts</li>", asked)},
	} {
		if page, _ := s.report(c.options); asked < 2 || !strings.Contains(page, c.want) {
			t.Errorf("%+v: %q is not in it", c.options, c.want)
		}
	}
}

// What was hostile is data in the file as well: no element of it ends early, and no control character
// stands in it as such.
func TestReportOfHostileText(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, "account", "fault", "ask")
	for _, o := range []web.ReportOptions{{}, {Full: true}, {RedactIO: true}, {FailedOnly: true}} {
		page, details := s.report(o)
		if n, blocks := strings.Count(page, "<script"), strings.Count(page, `<script type="application/octet-stream" id="`); n != blocks+1 || strings.Count(page, "</script>") != n {
			t.Errorf("%+v: %d elements script, %d of them data", o, n, blocks)
		}
		for _, text := range []string{"<img", "<!--", "<script>alert"} {
			if strings.Contains(page, text) {
				t.Errorf("%+v: it has %s", o, text)
			}
		}
		for at, c := range page {
			if c != '\n' && c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) || c == '\u200b' || c == '\ufeff') {
				t.Fatalf("%+v: %U stands in it: %q", o, c, page[max(0, at-60):at+20])
			}
		}
		if o == (web.ReportOptions{}) && !strings.Contains(details[0].text("Output"), "<script>alert(1)</script>") {
			t.Errorf("what an agent wrote is gone: %q", details[0].text("Output"))
		}
	}
}

// The page does not grow with the run: the report of 10,000 rollouts has as many elements before its data
// as that of 1,000, and less than a kilobyte for each rollout. Both are of results documents.
func TestReportOfTenThousandRollouts(t *testing.T) {
	testenv.NeedSlow(t)
	if testenv.Short() {
		t.Skip("it takes seconds")
	}
	t.Parallel()
	s := newSite(t, 4, "account", "wrong", "fault", "ask")
	elements := map[int]int{}
	for _, n := range []int{1000, 10_000} {
		path := filepath.Join(t.TempDir(), "results.json")
		if err := os.WriteFile(path, s.documentOf(n), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := runner.OpenReport(path, func(r *runner.Report) error { return web.WriteReport(&out, r, web.ReportOptions{}) }); err != nil {
			t.Fatal(err)
		}
		page, data, _ := strings.Cut(out.String(), `<script type="application/octet-stream"`)
		_, body, _ := strings.Cut(page, "<body>")
		elements[n] = strings.Count(body, "<") - strings.Count(body, "</")
		if blocks := strings.Count(data, ` id="d`); blocks != n/100 || out.Len() > n<<10 {
			t.Errorf("%d rollouts: %d blocks, %d bytes", n, blocks, out.Len())
		}
	}
	if elements[1000] > 5000 || elements[10_000] > elements[1000]+10 { // longer lists of pages
		t.Errorf("elements: %v", elements)
	}
}

// documentOf is the results document of the run with n rollouts, those that it has again and again, as
// other evaluations.
func (s *site) documentOf(n int) []byte {
	s.Helper()
	document := schemas.Results{Head: s.head}
	for i := range n {
		one := s.all[i%len(s.all)]
		one.EvaluationID = fmt.Sprintf("%s-%d", one.EvaluationID, i/len(s.all))
		one.EvaluationName = one.EvaluationID
		one.RolloutID = fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		document.EvaluationSetResults = append(document.EvaluationSetResults, one)
	}
	data, err := json.Marshal(document)
	if err != nil {
		s.Fatal(err)
	}
	return data
}
