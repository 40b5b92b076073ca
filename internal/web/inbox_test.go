package web_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

const approvals = `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [],
 "evaluations": [
  {"id": "a", "name": "A", "inputs": {"title": "Pay <b>12</b>?", "data": {"amount": 12, "note": "x\u202ey"}}, "evaluationCriterias": {}},
  {"id": "same", "name": "B", "inputs": {"title": "Pay <b>12</b>?", "data": {"amount": 12, "note": "x\u202ey"}}, "evaluationCriterias": {}},
  {"id": "form", "name": "Form", "inputs": {"title": "Which room?", "data": {"what": "question", "requestedSchema": {"type": "object", "required": ["floor", "kind"],
    "properties": {"floor": {"type": "integer", "maximum": 9}, "kind": {"type": "string", "enum": ["quiet", "loud"]}, "window": {"type": "boolean"}}}}}, "evaluationCriterias": {}}]}`

// approvalAgent asks what its input says, and returns what it was answered.
const approvalAgent = `read -r line
case $line in
*'"resume":null'*) printf '{"__interrupt__":[{"id":"q","value":{"type":"CreateTask",%s}]}\n' "$(echo "$line" | sed 's/.*"input":{//; s/},"resume".*/}/')" ;;
*) echo "$line" | sed 's/.*"resume"://; s/,"deliveries".*//' ;;
esac
`

// desk is a store with a suspended run, and its pages as somebody with a token sees them.
type desk struct {
	testing.TB
	*httptest.Server
	store *runner.Store
	runID string
	// set is the file of the eval set.
	set string
	who access.Identity
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	return newDeskOf(t, t.TempDir(), approvals, approvalAgent)
}

// newDeskOf is a desk with a run of another set, in a folder that may have something in it.
func newDeskOf(t testing.TB, dir, text, agent string) *desk {
	t.Helper()
	for name, text := range map[string]string{"set.json": text, "agent.sh": agent} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, err := runner.Load([]string{filepath.Join(dir, "set.json")}, runner.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{TB: t, set: filepath.Join(dir, "set.json"), who: access.Identity{ID: "abc", Name: "ada", Scopes: []access.Scope{access.Read, access.Deliver}}}
	if d.store, err = runner.Open(filepath.Join(dir, "store"), runner.OpenOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.store.Close() })
	created, err := d.store.Create(t.Context(), set, runner.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.runID = created.RunID
	d.work()
	pages := web.New(web.Options{Service: service.New(d.store, service.Config{}, service.Options{})})
	mux := http.NewServeMux()
	for _, e := range pages.Endpoints() {
		mux.Handle(e.Pattern, e.Handler)
	}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), d.who)))
	}))
	t.Cleanup(d.Close)
	return d
}

// work runs what can go on without waiting.
func (d *desk) work() {
	d.Helper()
	if _, err := d.store.Run(context.Background(), d.runID, runner.RunOptions{}); err != nil {
		d.Fatal(err)
	}
}

// trigger is what an evaluation waits for.
func (d *desk) trigger(evaluation string) (found runner.Trigger) {
	d.Helper()
	if err := d.store.Triggers(d.Context(), d.runID, true, func(t runner.Trigger) error {
		if t.EvaluationID == evaluation {
			found = t
		}
		return nil
	}); err != nil || found.TriggerID == "" {
		d.Fatal(evaluation, err)
	}
	return found
}

func (d *desk) do(method, path string, form url.Values, header ...string) (int, string) {
	d.Helper()
	r, err := http.NewRequestWithContext(d.Context(), method, d.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		d.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", d.URL)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a, err := d.Client().Do(r)
	if err != nil {
		d.Fatal(err)
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err != nil {
		d.Fatal(err)
	}
	return a.StatusCode, string(body)
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// form has the hidden fields of the form for a trigger, as a page has them.
func (d *desk) form(page, triggerID string, more ...string) url.Values {
	d.Helper()
	_, form, ok := strings.Cut(page, `action="/triggers/`+triggerID+`/answer"`)
	if !ok {
		d.Fatalf("no form for %s in %s", triggerID, page)
	}
	form, _, _ = strings.Cut(form, "</form>")
	v := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(form, -1) {
		v.Set(m[1], strings.NewReplacer("&#34;", `"`, "&#43;", "+", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(m[2]))
	}
	for i := 0; i < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return v
}

// outputs are what the agents have returned at last.
func (d *desk) outputs() map[string]string {
	d.Helper()
	out := map[string]string{}
	if err := d.store.Report(d.Context(), d.runID, runner.Variables{}, func(r *runner.Report) error {
		return r.Rollouts(func(one *schemas.Rollout) error {
			if one.AgentExecutionOutput != nil {
				out[one.EvaluationID] = string(one.AgentExecutionOutput.Result.Output)
			}
			return nil
		})
	}); err != nil {
		d.Fatal(err)
	}
	return out
}

func TestQuestionsAreAnsweredWithoutJavaScript(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	status, page := d.do("GET", "/inbox", nil)
	if status != http.StatusOK || !strings.Contains(page, "2 questions of 3 rollouts wait for a person") || strings.Contains(page, "<b>12") || strings.Contains(page, "\u202e") || !strings.Contains(page, "U&#43;202E") {
		t.Fatal(status, page)
	}
	a := d.trigger("a").TriggerID
	if !strings.Contains(page, `id="q-`+a) { // the other one has asked first
		a = d.trigger("same").TriggerID
	}
	status, confirm := d.do("POST", "/triggers/"+a+"/answer", d.form(page, a, "verb", "approve", "reason", "fine", "data", `{"limit":10}`, "all", "1"))
	if status != http.StatusOK || !strings.Contains(confirm, "To all rollouts that ask this word for word is sent, exactly") || !d.trigger("a").Open || !d.trigger("same").Open {
		t.Fatal(status, confirm)
	}
	status, sent := d.do("POST", "/triggers/"+a+"/answer", d.form(confirm, a))
	if status != http.StatusOK || !strings.Contains(sent, "Approved for 2 rollouts.") {
		t.Fatal(status, sent)
	}
	d.work()
	for _, id := range []string{"a", "same"} {
		if got := d.outputs()[id]; got != `{"q":{"action":"approve","approved":true,"reason":"fine","data":{"limit":10}}}` {
			t.Error(id, got)
		}
	}
	if by := d.trigger("same").Deliveries[0]; by.Person != "ada" || by.By != "page" {
		t.Errorf("answered by %+v", by)
	}
	// A second browser has the old page still open: ada's own, and one of somebody else.
	status, again := d.do("POST", "/triggers/"+a+"/answer", d.form(page, a, "verb", "deny", "confirm", "1"))
	if status != http.StatusConflict || !strings.Contains(again, "You have answered this already (page), at ") || strings.Contains(again, "was faster") {
		t.Error(status, again)
	}
	d.who.Name = "bob"
	status, late := d.do("POST", "/triggers/"+a+"/answer", d.form(page, a, "verb", "deny", "confirm", "1"))
	if status != http.StatusConflict || !strings.Contains(late, "ada (page) was faster, at ") || !strings.Contains(late, "&#34;limit&#34;: 10") {
		t.Error(status, late)
	}
}

func TestAFormIsMadeOfTheSchemaOfAQuestion(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, page := d.do("GET", "/inbox?sort=most", nil)
	id := d.trigger("form").TriggerID
	asJSON := []string{"Accept", "application/json"}
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"nothing":        {nil, "floor: expected an answer. kind: expected an answer."},
		"no number":      {[]string{"f.0", "two", "f.1", "0"}, `floor: expected a whole number, got "two".`},
		"too high":       {[]string{"f.0", "10", "f.1", "0"}, "floor: expected at most 9, got 10."},
		"no such choice": {[]string{"f.0", "2", "f.1", "<i>"}, "kind: expected one of the choices"},
	} {
		status, body := d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, append(c.values, "verb", "approve", "confirm", "1")...), asJSON...)
		var said struct{ Outcome, Text string }
		if json.Unmarshal([]byte(body), &said) != nil || status != http.StatusUnprocessableEntity || said.Outcome != "wrong" || !strings.Contains(said.Text, c.want) {
			t.Error(name, status, body)
		}
	}
	if !d.trigger("form").Open {
		t.Fatal("a wrong answer was sent")
	}
	status, body := d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, "f.0", "2", "f.1", "1", "f.2", "true", "verb", "approve", "confirm", "1"), asJSON...)
	if status != http.StatusOK || !strings.Contains(body, `"outcome":"sent"`) {
		t.Fatal(status, body)
	}
	d.work()
	if got := d.outputs()["form"]; got != `{"q":{"action":"approve","approved":true,"data":{"floor":2,"kind":"loud","window":true}}}` {
		t.Error(got)
	}
}

// A choice stands for its JSON value, of whatever type, and is made by nobody but the person who answers.
func TestAChoiceIsSentAsItsValue(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [],
 "evaluations": [{"id": "form", "name": "Form", "inputs": {"title": "How was it?", "data": {"requestedSchema": {"type": "object", "required": ["stars", "mixed", "one", "sure"],
   "properties": {"stars": {"type": "integer", "enum": [1, 2, 3]}, "mixed": {"enum": ["low", 2, null, {"a": 1.0}]}, "may": {"enum": [false, true]},
    "one": {"oneOf": [{"const": 0.5, "title": "half"}, {"const": "1"}, {"const": null}]}, "sure": {"enum": [1, 2], "default": 2},
    "any": {"oneOf": [{"type": "string"}, {"type": "number"}]}}}}}, "evaluationCriterias": {}}]}`, approvalAgent)
	_, page := d.do("GET", "/inbox", nil)
	for _, want := range []string{
		`<select name="f.0"><option value="">choose</option><option value="0">1</option><option value="1">2</option><option value="2">3</option></select>`,
		`<select name="f.1"><option value="">choose</option><option value="0">low</option><option value="1">2</option><option value="2">null</option><option value="3">{&#34;a&#34;:1.0}</option></select>`,
		`<select name="f.2"><option value=""></option><option value="0">false</option><option value="1">true</option></select>`,
		`<select name="f.3"><option value="">choose</option><option value="0">half</option><option value="1">1</option><option value="2">null</option></select>`,
		`<select name="f.4"><option value="0">1</option><option value="1" selected>2</option></select>`,
		`<textarea name="f.5"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the form lacks %s in\n%s", want, page)
		}
	}
	id, asJSON := d.trigger("form").TriggerID, []string{"Accept", "application/json"}
	status, body := d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, "f.1", "9", "f.3", "0", "f.4", "0", "verb", "approve", "confirm", "1"), asJSON...)
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "stars: expected an answer. mixed: expected one of the choices.") {
		t.Error(status, body)
	}
	status, body = d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, "f.0", "2", "f.1", "2", "f.2", "0", "f.3", "0", "f.4", "1", "verb", "approve", "confirm", "1"), asJSON...)
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	d.work()
	if got := d.outputs()["form"]; got != `{"q":{"action":"approve","approved":true,"data":{"stars":3,"mixed":null,"may":false,"one":0.5,"sure":2}}}` {
		t.Error(got)
	}
}

// A rater's verdict and label are not chosen before the rater has chosen.
func TestARatingIsNotDecidedByDefault(t *testing.T) {
	t.Parallel()
	d := newDeskOf(t, t.TempDir(), `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "evaluators": [{"version": "1.0", "id": "v", "type": "human", "evaluatorConfig": {"name": "V", "question": "Polite?", "answer": "boolean"}}],
 "evaluations": [{"id": "e", "name": "E", "inputs": {}, "evaluationCriterias": {"v": {}}}]}`, "echo '{}'\n")
	_, page := d.do("GET", "/inbox", nil)
	if !strings.Contains(page, `<option value="">choose</option><option value="0">pass</option><option value="1">fail</option>`) {
		t.Fatal(page)
	}
	id := d.trigger("e").TriggerID
	asJSON := []string{"Accept", "application/json"}
	if status, body := d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, "f.0", "", "verb", "rate", "confirm", "1"), asJSON...); status != http.StatusUnprocessableEntity || !strings.Contains(body, "Verdict: expected an answer.") || !d.trigger("e").Open {
		t.Error(status, body)
	}
	if status, body := d.do("POST", "/triggers/"+id+"/answer", d.form(page, id, "f.0", "1", "verb", "rate", "confirm", "1"), asJSON...); status != http.StatusOK || string(d.trigger("e").Deliveries[0].Payload) != `{"pass":false,"rater":"ada"}` {
		t.Error(status, body, string(d.trigger("e").Deliveries[0].Payload))
	}
}

func TestAnAnswerOfAnotherSiteIsRefused(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	_, page := d.do("GET", "/inbox", nil)
	id := d.trigger("a").TriggerID
	if !strings.Contains(page, `id="q-`+id) {
		id = d.trigger("same").TriggerID
	}
	form := d.form(page, id, "verb", "approve", "confirm", "1")
	for name, header := range map[string][]string{"another origin": {"Origin", "https://example.org"}, "no origin": {"Origin", ""}, "another site": {"Sec-Fetch-Site", "cross-site"}} {
		if status, body := d.do("POST", "/triggers/"+id+"/answer", form, header...); status != http.StatusForbidden {
			t.Error(name, status, body)
		}
	}
	for field, wrong := range map[string]string{"csrf": "00", "fence": "00", "verb": "drop", "data": "{"} {
		v := url.Values{}
		for key := range form {
			v.Set(key, form.Get(key))
		}
		v.Set(field, wrong)
		if status, body := d.do("POST", "/triggers/"+id+"/answer", v); status != http.StatusUnprocessableEntity || !strings.Contains(body, "The answer was not sent") {
			t.Error(field, status, body)
		}
	}
	d.who.Scopes = []access.Scope{access.Read}
	if status, body := d.do("POST", "/triggers/"+id+"/answer", form); status != http.StatusForbidden || !strings.Contains(body, "lacks the scope deliver") {
		t.Error("a token that may only look", status, body)
	}
	if _, body := d.do("GET", "/inbox", nil); strings.Contains(body, "<form method=\"post\"") {
		t.Error("who may not answer has a form")
	}
	if !d.trigger("a").Open || !d.trigger("same").Open {
		t.Error("a refused answer was sent")
	}
	for _, path := range []string{"/triggers/no/answer", "/triggers/" + d.runID + "/answer"} {
		if status, _ := d.do("POST", path, form); status != http.StatusNotFound {
			t.Error(path, status)
		}
	}
}

// On the page of one run all alike are those of this run, and the others wait as before. The card says
// which agents ask, and of how many runs.
func TestAllAlikeAreThoseThatThePageShows(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	first := d.runID
	set, err := runner.Load([]string{d.set}, runner.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created, err := d.store.Create(t.Context(), set, runner.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.runID = created.RunID
	d.work()
	if text := d.text("/inbox"); !strings.Contains(text, "4 rollouts of 2 runs ask this word for word: sh × 4") {
		t.Error(text)
	}
	_, page := d.do("GET", "/inbox?run="+d.runID, nil)
	asked := d.trigger("a").TriggerID
	if !strings.Contains(page, `id="q-`+asked) {
		asked = d.trigger("same").TriggerID
	}
	if !strings.Contains(page, "answer all 2 alike, of this run alone") {
		t.Error(page)
	}
	_, confirm := d.do("POST", "/triggers/"+asked+"/answer", d.form(page, asked, "verb", "approve", "all", "1"))
	code, sent := d.do("POST", "/triggers/"+asked+"/answer", d.form(confirm, asked))
	if code != http.StatusOK || !strings.Contains(confirm, "To all rollouts of this run that ask this") || !strings.Contains(sent, "Approved for 2 rollouts.") {
		t.Error(code, confirm, sent)
	}
	for _, run := range []string{d.runID, first} {
		d.runID = run
		for _, id := range []string{"a", "same"} {
			if open := d.trigger(id).Open; open != (run == first) {
				t.Errorf("%s of the run %s is open: %v", id, run, open)
			}
		}
	}
}

// Of a long value the beginning is shown and the rest folded; a question of more than 64 KB is folded as
// a whole. All of it can be had, and the page stays small.
func TestALargeQuestionIsFolded(t *testing.T) {
	t.Parallel()
	long, large := strings.Repeat("long ", 2000)+"END", strings.Repeat("large ", 20000)+"END"
	d := newDeskOf(t, t.TempDir(), `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [],
 "evaluations": [{"id": "long", "name": "Long", "inputs": {"title": "Read this?", "data": {"text": "`+long+`"}}, "evaluationCriterias": {}},
  {"id": "large", "name": "Large", "inputs": {"title": "And this?", "data": {"text": "`+large+`"}}, "evaluationCriterias": {}},
  {"id": "title", "name": "Title", "inputs": {"title": "`+long+`"}, "evaluationCriterias": {}}]}`, approvalAgent)
	_, page := d.do("GET", "/inbox", nil)
	if len(page) > 60_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	card := func(id string) string {
		_, card, _ := strings.Cut(page, `<article class="ask" id="q-`+d.trigger(id).TriggerID)
		card, _, _ = strings.Cut(card, "</article>")
		return card
	}
	for id, want := range map[string][]string{
		"long":  {"Read this?", "<summary>… and 7603 bytes more</summary>", "END"},
		"large": {"And this?", "<details><summary>A question of 120", "bytes: show its first part</summary>", "bytes more</span>", "All that is asked, 120"},
		"title": {"long long long", " …</span></h2>", "All that is asked, 10"},
	} {
		for _, text := range want {
			if !strings.Contains(card(id), text) {
				t.Errorf("%s: the card lacks %q in\n%.3000s", id, text, card(id))
			}
		}
		code, all := d.do("GET", "/triggers/"+d.trigger(id).TriggerID+"/question", nil)
		if code != http.StatusOK || !strings.Contains(all, "END") || all != string(d.trigger(id).Payload) {
			t.Errorf("%s: %d, and %d bytes of the question", id, code, len(all))
		}
	}
	if strings.Contains(card("large"), "END") {
		t.Error("all of a large question is in the page")
	}
	if code, _ := d.do("GET", "/triggers/none/question", nil); code != http.StatusNotFound {
		t.Error("a question that is not there:", code)
	}
}

// W5: names of values are bounded, and all that is asked can be had. A value that is deep takes no more room
// than it has; nothing that is asked is left out because its name is long.
func TestTheHostileQuestion(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("k", 230)
	deep := strings.Repeat("[", 480) + strings.Repeat("]", 480)
	d := newDeskOf(t, t.TempDir(), `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]}, "evaluators": [],
 "evaluations": [{"id": "a", "name": "A", "inputs": {"title": "Pay", "data": {"`+key+`": "12 EUR", "`+strings.Repeat("é", 300)+`": 1, "to": "Pay mallory"}}, "evaluationCriterias": {}},
  {"id": "deep", "name": "Deep", "inputs": {"title": "Deep?", "data": {"x": `+deep+`}}, "evaluationCriterias": {}}]}`, approvalAgent)
	_, page := d.do("GET", "/inbox", nil)
	for _, want := range []string{"12 EUR", "Pay mallory", key[:80] + " …", "/question\" download"} {
		if !strings.Contains(page, want) {
			t.Errorf("the inbox lacks %q", want)
		}
	}
	if strings.Contains(page, key) {
		t.Error("the inbox has the whole of a name of 230 characters")
	}
	if len(page) > 100_000 {
		t.Errorf("the inbox has %d bytes", len(page))
	}
	if _, page := d.do("GET", "/runs/"+d.runID+"/rollouts/"+d.trigger("deep").RolloutID, nil); len(page) > 100_000 {
		t.Errorf("the page of the rollout has %d bytes", len(page))
	}
}

// W11: an inbox that shows some of the questions is told of these alone.
func TestTheStreamOfAFilteredInbox(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for query, want := range map[string]int{"": 2, "?q=room": 1, "?q=nothing": 0, "?run=" + d.runID: 2} {
		ctx, stop := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.URL+"/inbox/live"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := d.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		for {
			text := line(t, a.Body)
			if data, ok := strings.CutPrefix(text, "data: "); ok {
				var told struct{ Open []string }
				if err := json.Unmarshal([]byte(data), &told); err != nil || len(told.Open) != want {
					t.Errorf("%q is told of %d questions: %s %v", query, len(told.Open), data, err)
				}
				break
			}
		}
		stop()
		_ = a.Body.Close() // it was only read
	}
}
