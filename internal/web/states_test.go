package web_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
	"github.com/evalrun/evalrun/internal/store"
)

// words are the texts of a page, as somebody reads them.
func words(page string) string {
	_, page, _ = strings.Cut(page, "<main")
	text := html.UnescapeString(tagsOf.ReplaceAllString(regexp.MustCompile(`(?s)<title>.*?</title>`).ReplaceAllString(page, ""), " "))
	return strings.Join(strings.Fields(text), " ")
}

func (s *site) says(page string, what ...string) {
	s.Helper()
	text := words(page)
	for _, one := range what {
		if !strings.Contains(text, one) {
			s.Errorf("the page lacks %q:\n%s", one, text)
		}
	}
}

// The page of a rollout that has not ended says what it is at, and what can be done about it.
func TestThePageOfARolloutInEveryState(t *testing.T) {
	t.Parallel()
	st, runID := plannedRun(t, 5)
	claims, err := st.Internal().Claim(t.Context(), runID, 3)
	if err != nil || len(claims) != 3 {
		t.Fatal(claims, err)
	}
	log := filepath.Join(st.Dir(), "runs", runID, "rollouts", claims[0].RolloutID, "segments", "1.1", "stderr.log")
	if err := os.MkdirAll(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, []byte("it has begun\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	question := store.NewTrigger{InterruptID: "q", Type: "TASK", Source: "external", ItemKey: "k", Spec: json.RawMessage(`{"type":"TASK","payload":{"title":"Go on?","app_name":"Desk"}}`)}
	job := store.NewTrigger{InterruptID: "j", Type: "JOB", Source: "external", ItemKey: "k2", Spec: json.RawMessage(`{"type":"JOB","payload":{"process_name":"FraudCheck"}}`)}
	for i, end := range []store.SegmentEnd{{}, {Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{question, job}}, {Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{"content":8}`)}} {
		if end.Outcome == "" {
			continue
		}
		if _, err := st.Internal().CommitSegment(t.Context(), claims[i].Token, end); err != nil {
			t.Fatal(err)
		}
	}
	s := &site{TB: t, pages: pagesOf(st), store: st, runID: runID}
	at := map[eval.State]string{}
	all, err := st.Internal().ListRollouts(t.Context(), runID, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		at[one.State] = "/runs/" + runID + "/rollouts/" + one.ID // of the pending ones the last
	}
	in := func(t *testing.T, state eval.State) (*site, string) {
		t.Helper()
		s := &site{TB: t, pages: s.pages}
		page := s.page(at[state])
		if !strings.Contains(page, `<li id="status"><span class="st `+string(state)+`">`) {
			t.Errorf("its status is not %s", state)
		}
		return s, page
	}
	t.Run("pending", func(t *testing.T) {
		s, page := in(t, eval.StatePending)
		s.says(page, "It has not begun: it is number 2 of 2 in the queue of this run.", "and since then pending for")
	})
	t.Run("running", func(t *testing.T) {
		s, page := in(t, eval.StateRunning)
		s.says(page, "its agent runs, and no evaluator sees an unfinished rollout", "it has begun", "The agent is running.", "1 running")
		if !strings.Contains(page, `data-follow="`) || !strings.Contains(page, `<details open><summary>The end of`) {
			t.Error("its log is not there to be followed")
		}
	})
	t.Run("suspended", func(t *testing.T) {
		s, page := in(t, eval.StateSuspended)
		s.says(page, "waits for question Go on? : answer it below", "waits for job FraudCheck", "question Go on?: waiting", "Approve a", "Approve sends exactly:", "Deny sends exactly:")
		form := regexp.MustCompile(`(?s)<form method="post" action="/triggers/[^"]*/answer".*?</form>`).FindAllString(page, -1)
		if len(form) != 1 || !strings.Contains(form[0], `name="fence"`) || strings.Contains(form[0], "Skip") {
			t.Errorf("%d forms: %s", len(form), form)
		}
	})
	t.Run("evaluating", func(t *testing.T) {
		s, page := in(t, eval.StateEvaluating)
		s.says(page, "Its agent has ended. The evaluators are being asked.")
	})
	t.Run("cancelled", func(t *testing.T) {
		if _, err := st.Internal().Cancel(t.Context(), strings.TrimPrefix(at[eval.StatePending], "/runs/"+runID+"/rollouts/")); err != nil {
			t.Fatal(err)
		}
		at[eval.StateCancelled] = at[eval.StatePending]
		s, page := in(t, eval.StateCancelled)
		s.says(page, "It was cancelled, and is not scored.")
	})
}

// A question is answered on the page of its rollout, without JavaScript as well.
func TestAQuestionIsAnsweredOnThePageOfItsRollout(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	asked := d.trigger("a")
	path := "/runs/" + d.runID + "/rollouts/" + asked.RolloutID
	_, page := d.do("GET", path, nil)
	form := d.form(page, asked.TriggerID, "verb", "approve", "reason", "fine")
	_, confirm := d.do("POST", "/triggers/"+asked.TriggerID+"/answer", form)
	status, sent := d.do("POST", "/triggers/"+asked.TriggerID+"/answer", d.form(confirm, asked.TriggerID))
	if status != 200 || !strings.Contains(sent, "Approved.") || d.trigger("a").Open {
		t.Fatal(status, sent)
	}
	if _, page = d.do("GET", path, nil); strings.Contains(page, `<form method="post"`) || !strings.Contains(words(page), "by ada (page)") {
		t.Error("the page still asks, or does not say who has answered")
	}
	d.who.Scopes = d.who.Scopes[:1]
	other := "/runs/" + d.runID + "/rollouts/" + d.trigger("form").RolloutID
	if _, page := d.do("GET", other, nil); strings.Contains(page, `<form method="post"`) || !strings.Contains(words(page), "it lacks the scope deliver") {
		t.Error("who may not answer has a form")
	}
}

const endedSet = `{"version": "1.0", "id": "s", "name": "Ended", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Exact", "targetOutputKey": "x"}},
  {"id": "like", "evaluatorTypeId": "uipath-json-similarity", "evaluatorConfig": {"name": "Fields"}},
  {"id": "tone", "type": "command", "command": ["sh", "-c", "echo Traceback >&2; echo '  File tone.py, line 31' >&2; echo 'FileNotFoundError: tone-v3.bin' >&2; exit 1"]},
  {"id": "judge", "name": "Kind", "type": "llm-judge", "evaluatorConfig": {"prompt": "Kind? {{output}}", "judges": [{"model": "gpt-5-mini"}], "answer": "score", "samples": 3}},
  {"id": "rater", "name": "Rated", "type": "human", "evaluatorConfig": {"question": "Good?"}}],
 "evaluations": [
  {"id": "fault", "name": "Fault", "inputs": {"fault": 1}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 1}}}},
  {"id": "none", "name": "None", "inputs": {}, "evaluationCriterias": {}},
  {"id": "some", "name": "Some", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 1}}, "like": {"expectedOutput": {"x": 1, "y": [1, 2]}}}},
  {"id": "error", "name": "Error", "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": {"x": 1}}, "tone": {}}},
  {"id": "judged", "name": "Judged", "inputs": {}, "evaluationCriterias": {"judge": null}},
  {"id": "rated", "name": "Rated", "inputs": {}, "evaluationCriterias": {"rater": {}}}]}`

// The page of a rollout that has ended says why it has its score, or why it has none.
func TestThePageOfARolloutThatHasEnded(t *testing.T) {
	var n atomic.Int64
	judge, err := fakejudge.Start(func(fakejudge.Request) fakejudge.Reply {
		i := n.Add(1)
		return fakejudge.Score(float64(i%3)/4, []string{"kind enough <b>\u202e", "too short"}[i%2])
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = judge.Close() }()
	for name, value := range judge.Environ() {
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"set.json": endedSet, "agent.sh": "read -r line\ncase $line in *fault*) echo first >&2; echo 'RuntimeError: 503' >&2; exit 3;; esac\necho '{\"x\": 1, \"y\": [1]}'\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSiteOf(t, dir)
	page := func(id string) string { return s.page(s.path(s.rollout(id))) }
	t.Run("faulted", func(t *testing.T) {
		s := &site{TB: t}
		s.says(page("fault"), "exit , a fault of the agent, which counts as 0: RuntimeError: 503", "stderr ends with: first RuntimeError: 503", "No evaluator has seen it: RuntimeError: 503.")
	})
	t.Run("unscored", func(t *testing.T) {
		s := &site{TB: t}
		s.says(page("none"), "No score: no criterion for any evaluator.", "no criterion for them: Exact , Fields , tone , Kind , Rated")
	})
	t.Run("failed", func(t *testing.T) {
		s := &site{TB: t}
		s.says(page("some"), "Fields like 0.667 leaves equal: 2 of 3", "$.y[1] 2 missing", "Exact x 1.000 as expected: 1.0", "no criterion for them: tone , Kind , Rated")
	})
	t.Run("an evaluator's error", func(t *testing.T) {
		s := &site{TB: t}
		s.says(page("error"), "error No score: the evaluator failed.")
		if !regexp.MustCompile(`<pre class="u"[^>]*>[^<]*File tone.py, line 31\nFileNotFoundError: tone-v3.bin</pre>`).MatchString(page("error")) {
			t.Error("the page does not have the end of what the evaluator has said, line by line")
		}
	})
	t.Run("judged", func(t *testing.T) {
		s := &site{TB: t}
		s.says(page("judged"), "kind enough <b> U+202E ", "too short ", "3 votes of gpt-5-mini", "mean; spread 0.250; agreement 33 %", "0.500", "the model")
	})
	t.Run("scoring", func(t *testing.T) {
		s := &site{TB: t}
		s.says(page("rated"), "Its agent has ended, and a score is waited for.", "waits for question", "answer it below", "Rate a")
	})
	t.Run("its folder is gone", func(t *testing.T) {
		one := s.rollout("some")
		if err := os.RemoveAll(filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID)); err != nil {
			t.Fatal(err)
		}
		s := &site{TB: t, pages: s.pages}
		s.says(page("some"), "Its folder was removed.", "leaves equal: 2 of 3")
		if code := s.get(fmt.Sprintf("/runs/%s/rollouts/%s/files/segments/1.1/stderr.log", url.PathEscape(one.RolloutID), one.RolloutID)).Code; code != 404 {
			t.Error(code)
		}
	})
}

// A table of more rows than a page has is shown in parts, each by a link.
func TestTheTableOfALongTimelineHasParts(t *testing.T) {
	t.Parallel()
	var spans []string
	for i := range 400 { // calls that overlap are merged however long the agent takes
		spans = append(spans, fmt.Sprintf(`{"name":"look","start_time":"2026-01-05T09:00:%02d.%03dZ","end_time":"2026-01-05T09:00:%02d.%03dZ","attributes":{"tool.name":"look %d"}}`, i/10, 100*(i%10), i/10+1, 100*(i%10), i))
	}
	set := `{"version": "1.0", "id": "s", "name": "Long", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [], "evaluations": [{"id": "long", "name": "Long", "inputs": {}, "evaluationCriterias": {}}]}`
	dir := t.TempDir()
	for name, text := range map[string]string{"set.json": set, "spans": strings.Join(spans, "\n"), "agent.sh": "cat spans >$EVALRUN_TRACE_FILE; echo {}"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := newSiteOf(t, dir)
	path := s.path(s.rollout("long"))
	row := regexp.MustCompile(`<tr data-from=`)
	first := s.page(path)
	next := regexp.MustCompile(`href="(\?row=2#timeline-table)"`).FindStringSubmatch(first)
	if next == nil || len(row.FindAllString(first, -1)) != 300 || !strings.Contains(first, " calls in ") {
		t.Fatal(next, len(row.FindAllString(first, -1)))
	}
	second := s.page(path + "?row=2")
	if n := len(row.FindAllString(second, -1)); n < 100 || n > 110 || !strings.Contains(second, "<details open><summary>The timeline as a table") || !strings.Contains(second, "look 399") {
		t.Error(n, "rows in the second part")
	}
}
