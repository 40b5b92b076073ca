package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/schemas"
)

func TestResultsDocument(t *testing.T) {
	r := mixedRun(t)
	first := r.document()
	golden(t, "results.json", first)
	r.wait(1e12)
	if !bytes.Equal(first, r.document()) {
		t.Error("the document of one revision changed with time")
	}
}

// The example of DESIGN section 6, key by key.
func TestASuspendedRolloutLooksLikeTheDesign(t *testing.T) {
	r := newRun(t, setOf([]eval.Definition{exact("exact")}, evaluation("basic", "Basic suspend test")))
	r.claim(1)
	r.suspend("basic", "", 0, `{"name":"TestProcess","input_arguments":{}}`)
	var doc struct {
		schemas.Head
		EvaluationSetResults []json.RawMessage
	}
	r.check(json.Unmarshal(r.document(), &doc))
	if doc.Status != schemas.Suspended || doc.Final || !cmp.Equal(doc.Summary, schemas.Summary{Total: 1, Suspended: 1, ScoreOf: "withFaulted"}) {
		t.Errorf("got %+v", doc.Head)
	}
	keys := keysOf(t, doc.EvaluationSetResults[0])
	want := "evaluationId evaluationName rolloutId agent epoch status score error resumedBy mcpServers isolation segments evaluationRunResults agentExecutionOutput clocks inputs criteria startedAt"
	if keys != want {
		t.Errorf("got %s, want %s", keys, want)
	}
	var entry struct {
		AgentExecutionOutput struct{ Result json.RawMessage }
	}
	r.check(json.Unmarshal(doc.EvaluationSetResults[0], &entry))
	result := entry.AgentExecutionOutput.Result
	if keys := keysOf(t, result); keys != "status output error trigger triggers" {
		t.Errorf("got %s", keys)
	}
	var shown struct{ Trigger, Triggers json.RawMessage }
	r.check(json.Unmarshal(result, &shown))
	if keys := keysOf(t, shown.Trigger); !strings.HasPrefix(keys, "trigger_id interrupt_id trigger_type trigger_name item_key folder_path payload") {
		t.Errorf("got %s", keys)
	}
	var g schemas.Trigger
	r.check(json.Unmarshal(shown.Trigger, &g))
	var payload bytes.Buffer
	r.check(json.Compact(&payload, g.Payload))
	if g.Type != "JOB" || g.Name != "JOB" || g.ItemKey != "job-"+g.TriggerID || g.FolderPath == nil || *g.FolderPath != "Shared" || payload.String() != `{"process_name":"TestProcess","input_arguments":{}}` {
		t.Errorf("got %+v", g)
	}
}

// keysOf gives the keys of an object in order.
func keysOf(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	var keys []string
	_, _ = dec.Token()
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key.(string))
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return strings.Join(keys, " ")
}

func TestEveryStateMakesAValidDocument(t *testing.T) {
	set := setOf([]eval.Definition{exact("exact")}, evaluation("a", "A"), evaluation("b", "B"))
	t.Run("nothing planned", func(t *testing.T) {
		r := newRun(t, setOf(nil))
		if doc := string(r.document()); !strings.Contains(doc, `"evaluationSetResults": []`) || !strings.Contains(doc, `"status": "successful"`) {
			t.Error(doc)
		}
	})
	t.Run("pending", func(t *testing.T) {
		if doc := string(newRun(t, set).document()); strings.Count(doc, `"agentExecutionOutput": null`) != 2 || !strings.Contains(doc, `"status": "running"`) {
			t.Error(doc)
		}
	})
	t.Run("evaluating", func(t *testing.T) {
		r := newRun(t, set)
		r.claim(1)
		r.commit("a", store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`"x"`)}, nil)
		r.check(r.st.RecordResult(t.Context(), r.claims["a"].Token, store.Result{EvaluatorID: "exact", Data: json.RawMessage(`[{"evaluatorId":"exact","score":1,"scale":1}]`)}))
		doc := string(r.document())
		if !strings.Contains(doc, `"status": "evaluating"`) || !strings.Contains(doc, `"output": "x"`) || strings.Contains(doc, "evaluatorName") {
			t.Error(doc)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		r := newRun(t, set)
		r.claim(1)
		r.suspend("a", "", 0, jobValue)
		_, err := r.st.Cancel(t.Context(), testRunID)
		r.check(err)
		doc := string(r.document())
		if !strings.Contains(doc, `"category": "cancelled"`) || strings.Count(doc, `"agentExecutionOutput": null`) != 1 || !strings.Contains(doc, `"final": true`) || strings.Contains(doc, "trigger_id") {
			t.Error(doc)
		}
	})
	t.Run("running again", func(t *testing.T) {
		r := newRun(t, set)
		r.claim(1)
		r.suspend("a", "", 0, jobValue)
		r.deliver("a", `1`)
		r.claim(2)
		doc := string(r.document())
		if !strings.Contains(doc, `"segment": 2`) || strings.Contains(doc, `"at": null`) {
			t.Error(doc)
		}
	})
	t.Run("missing trace", func(t *testing.T) {
		r := mixedRun(t)
		r.check(os.RemoveAll(string(files.Of(r.st).Run(testRunID))))
		if doc := string(r.document()); strings.Contains(doc, `"name": "add"`) {
			t.Error("a span came from nowhere")
		}
	})
}

func TestSecretsDoNotReachTheDocument(t *testing.T) {
	const secret = "hush-hush-1234"
	classes := eval.Definition{ID: "classes", Name: "classes " + secret, Type: "uipath-exact-match", Weight: 1,
		Config: json.RawMessage(`{"name":"classes","classes":["a","b"],"aggregators":[{"type":"confusion_matrix"}]}`)}
	set := setOf([]eval.Definition{exact("exact"), classes}, evaluation("a", "A "+secret), evaluation("b", "B"), evaluation("c", "C"))
	set.Evaluations[0].Tags = []string{secret}
	r := newRun(t, set, "calculator")
	r.red = redact.New(map[string]string{"TOKEN": secret})
	r.claim(3)
	result := score("exact", 0)
	result.Details, result.Error = json.RawMessage(`"saw `+secret+`"`), "failed with "+secret
	r.complete("a", `{"`+secret+`":"`+secret+`"}`, `{"name":"`+secret+`","attributes":{"input.value":"{\"t\":\"`+secret+`\"}"}}`+"\n", result)
	r.suspend("b", "", 0, `{"name":"`+secret+`","input_arguments":{"a":"`+secret+`"}}`)
	r.commit("c", store.SegmentEnd{Outcome: store.OutcomeFailed, Fault: fault.New("exit", secret)}, nil)
	outputs := map[string][]byte{"results": r.document()}
	r.report(func(rep *Report) {
		for name, write := range writers(rep) {
			var b bytes.Buffer
			r.check(write(&b))
			outputs[name] = b.Bytes()
		}
	})
	for name, out := range outputs {
		if bytes.Contains(out, []byte(secret)) {
			t.Errorf("%s has the secret: %s", name, out)
		}
		if !bytes.Contains(out, []byte("redacted")) {
			t.Errorf("%s has no marker: %s", name, out)
		}
	}
	narrowed := Options{Redact: r.red, Plan: plans.Plan{Origin: plans.Origin{EvalIDs: []string{secret}}}}.head(store.Run{})
	if want := []string{"[redacted:TOKEN]"}; !slices.Equal(narrowed.EvalIDs, want) {
		t.Errorf("evalIds: got %q, want %q", narrowed.EvalIDs, want)
	}
}

func TestSaveResults(t *testing.T) {
	r := mixedRun(t)
	path := filepath.Join(r.dir, "results.json")
	r.check(SaveResults(t.Context(), r.st, testRunID, path, nil, nil))
	head, err := ReadResults(path)
	r.check(err)
	if head.RunID != testRunID || head.StoreID != r.st.ID() || head.StorePath != ".evalrun" || head.Status != schemas.Running || head.Final {
		t.Errorf("got %+v", head)
	}
	data, err := os.ReadFile(path)
	r.check(err)
	r.check(schemas.Validate("results", data))
	const rollouts = `"evaluationSetResults"`
	_, written, _ := strings.Cut(string(r.document()), rollouts)
	if _, saved, _ := strings.Cut(string(data), rollouts); written == "" || saved != written {
		t.Errorf("a document that is saved is another than one that is written:\n%s", cmp.Diff(written, saved))
	}
	var compact, indented bytes.Buffer
	r.check(json.Compact(&compact, data))
	r.check(json.Indent(&indented, compact.Bytes(), "", "  "))
	if diff := cmp.Diff(indented.String()+"\n", string(data)); diff != "" {
		t.Errorf("the document is not indented as JSON is:\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(string(files.Of(r.st).Run(testRunID)), "*.spool")); len(left) > 0 {
		t.Errorf("%v was left", left)
	}

	t.Run("goes on with the run", func(t *testing.T) {
		r.deliver("waits", `{}`)
		r.check(SaveResults(t.Context(), r.st, testRunID, path, nil, nil))
		later, err := ReadResults(path)
		r.check(err)
		if later.Revision <= head.Revision {
			t.Errorf("revision %d after %d", later.Revision, head.Revision)
		}
	})
	t.Run("leaves a higher revision", func(t *testing.T) {
		future := strings.Replace(string(data), `"revision": `, `"revision": 9`, 1)
		r.check(os.WriteFile(path, []byte(future), 0o600))
		r.check(SaveResults(t.Context(), r.st, testRunID, path, nil, nil))
		if now, _ := os.ReadFile(path); string(now) != future {
			t.Error("it was overwritten")
		}
	})
	t.Run("replaces what is no document of the run", func(t *testing.T) {
		for _, text := range []string{"", "{", `{"runId":"other","revision":99999}`, string(data[:len(data)/2])} {
			r.check(os.WriteFile(path, []byte(text), 0o600))
			r.check(SaveResults(t.Context(), r.st, testRunID, path, nil, nil))
			if _, err := ReadResults(path); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("follows a link", func(t *testing.T) {
		link := filepath.Join(r.dir, "link.json")
		r.check(os.Symlink(path, link))
		r.check(os.Remove(path))
		r.check(os.WriteFile(path, nil, 0o600))
		r.check(SaveResults(t.Context(), r.st, testRunID, link, nil, nil))
		if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
			t.Error("the link was replaced")
		}
		_, err := ReadResults(path)
		r.check(err)
	})
	t.Run("leaves a device alone", func(t *testing.T) {
		r.check(SaveResults(t.Context(), r.st, testRunID, os.DevNull, nil, nil))
		if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
			t.Fatal("the device is a file now")
		}
	})
	t.Run("beside the run", func(t *testing.T) {
		own := files.Of(r.st).Run(testRunID).Results()
		r.check(SaveResults(t.Context(), r.st, testRunID, own, nil, nil))
		head, err := ReadResults(own)
		r.check(err)
		if head.StorePath != "../.." {
			t.Errorf("got %s", head.StorePath)
		}
	})
}

// Each member of the head is read from a document, and what nobody reads is passed over, numbers that no
// float64 holds among it.
func TestTheHeadOfADocumentIsRead(t *testing.T) {
	fields := new(documentReader).fields()
	for field := range reflect.TypeFor[schemas.Head]().Fields() {
		if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); fields[key] == nil {
			t.Errorf("%q is not read", key)
		}
	}
	r := mixedRun(t)
	path := filepath.Join(r.dir, "results.json")
	text := strings.Replace(string(r.document()), "{", `{"later": [{"n": 1e400}],`, 1)
	r.check(os.WriteFile(path, []byte(text), 0o600))
	if _, err := ReadResults(path); err != nil {
		t.Error(err)
	}
}

func TestReadResultsRefuses(t *testing.T) {
	testenv.NeedSlow(t)
	r := mixedRun(t)
	path := filepath.Join(r.dir, "results.json")
	r.check(SaveResults(t.Context(), r.st, testRunID, path, nil, nil))
	whole, err := os.ReadFile(path)
	r.check(err)
	for name, c := range map[string]struct{ text, want string }{
		"empty":         {"", "is empty"},
		"cut":           {string(whole[:len(whole)-3]), "is cut"},
		"cut in a word": {string(whole[:len(whole)/2]), "is cut"},
		"twice":         {string(whole) + "{}", "more text"},
		"broken":        {strings.Replace(string(whole), `"epoch": 1`, `"epoch" 1`, 1), "not valid JSON"},
		"array":         {"[]", "expected a JSON object"},
		"eval set":      {`{"id":"x","evaluations":[]}`, "is an eval set"},
		"UiPath":        {`{"evaluationSetName":"x","evaluationSetResults":[]}`, "UiPath's own format"},
		"other":         {`{"a":1}`, "not a results document"},
		"newer":         {strings.Replace(string(whole), `"2.0"`, `"3.0"`, 1), "update evalrun"},
		"wrong type":    {strings.Replace(string(whole), `"final": false`, `"final": "no"`, 1), "final"},
		"no run":        {strings.Replace(string(whole), testRunID, "", 1), "runId"},
	} {
		t.Run(name, func(t *testing.T) {
			r.check(os.WriteFile(path, []byte(c.text), 0o600))
			_, err := ReadResults(path)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
			if _, err := Open(path); err == nil {
				t.Error("Open took it")
			}
		})
	}
	if _, err := ReadResults(filepath.Join(r.dir, "nosuch.json")); !os.IsNotExist(unwrap(err)) {
		t.Errorf("got %v", err)
	}
	// Cut anywhere, it is never taken for a whole one.
	for n := 0; n < len(whole)-2; n += 1 + len(whole)/300 {
		r.check(os.WriteFile(path, whole[:n], 0o600))
		if _, err := ReadResults(path); err == nil {
			t.Fatalf("the first %d of %d bytes were taken for a document", n, len(whole))
		}
	}
}

func unwrap(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}
