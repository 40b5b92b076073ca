package schemas

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestEverySchemaIsOneAndHasAName(t *testing.T) {
	files, err := fs.Glob(FS, "*.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(Names) {
		t.Errorf("%d files and %d names", len(files), len(Names))
	}
	for _, name := range Names {
		if err := Validate(name, []byte(`null`)); err == nil || strings.HasPrefix(err.Error(), "schema ") {
			t.Errorf("%s: null gave %v", name, err)
		}
	}
	if err := Validate("nosuch", []byte(`{}`)); err == nil || !strings.Contains(err.Error(), "evalset") {
		t.Errorf("got %v", err)
	}
	if err := Validate("event", []byte(`{`)); err == nil {
		t.Error("half a document was accepted")
	}
}

// Real files of UiPath's samples, where there is a copy of them, and our own examples.
func TestRealFilesAreAccepted(t *testing.T) {
	for _, c := range []struct{ schema, root, folder string }{
		{"evalset", "uipath", "eval-sets"},
		{"evaluator", "uipath", "evaluators"},
		{"evalset", "../fixtures", ""},
	} {
		t.Run(c.schema+" "+filepath.Base(c.root), func(t *testing.T) {
			if c.root == "uipath" {
				c.root = testenv.DataDir(t, c.root)
			}
			seen := 0
			err := filepath.WalkDir(c.root, func(path string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || !isDocument(path, c.folder) {
					return err
				}
				seen++
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				node, err := input.Parse(path, data)
				if err != nil {
					return err
				}
				if err := Validate(c.schema, node.JSON()); err != nil {
					t.Errorf("%s: %v", path, err)
				}
				return nil
			})
			if err != nil || seen == 0 {
				t.Errorf("%d files: %v", seen, err)
			}
		})
	}
}

func isDocument(path, folder string) bool {
	if folder == "" {
		base := filepath.Base(path)
		return strings.TrimSuffix(base, filepath.Ext(base)) == "evalset"
	}
	return filepath.Base(filepath.Dir(path)) == folder && filepath.Ext(path) == ".json"
}

func TestEvalset(t *testing.T) {
	set := func(more string) string {
		return `{"id":"a","name":"b","version":"1.0","evaluations":[{"id":"1","name":"n","inputs":{},"evaluationCriterias":{"e":null}}]` + more + `}`
	}
	for _, c := range []struct {
		doc string
		ok  bool
	}{
		{set(``), true},
		{set(`,"unknown":1`), true},
		{set(`,"agents":["codex",{"type":"acp","command":["a"],"permissions":"suspend"},{"type":"oracle"}],"tasks":["tasks/*"]`), true},
		{set(`,"agents":["codecs"]`), false},
		{set(`,"tasks":"tasks/*"`), false},
		{set(`,"agent":{"type":"function","command":["python3","a.py"],"resumeWhen":"all","timeout":"10m","env":{"A":"${B}"}}`), true},
		{set(`,"agent":{"type":"function"}`), false},
		{set(`,"agent":{"type":"function","command":["x"],"timeOut":"1m"}`), false},
		{set(`,"epochs":3,"limits":{"timeout":"1h30m","outputBytes":1024},"retry":{"max":2,"on":["exit"]},"thresholds":{"score":0.8,"evaluators":{"e":1}}`), true},
		{set(`,"epochs":{"count":3,"reduce":"atLeastOne"}`), true},
		{set(`,"epochs":0`), false},
		{set(`,"limits":{"timeout":"10 minutes"}`), false},
		{set(`,"limits":{"timout":"10m"}`), false},
		{set(`,"thresholds":{"score":80}`), false},
		{set(`,"jobs":{"P":{"source":"exec","command":["make"]},"*":{"source":"external"}}`), true},
		{set(`,"jobs":{"P":{"source":"http","start":{"url":"https://x/{processName}","headers":{"A":"${T}"},"body":{"a":"{inputArguments}"}},"status":{"url":"https://x/{itemKey}","done":".done"},"interval":"2s"}}`), true},
		{set(`,"jobs":{"*":{"source":"uipath","url":"https://cloud.uipath.com/o/t/orchestrator_","token":"${T}","folderKey":"k","interval":"2s","maxInterval":"1m"}}`), true},
		{set(`,"jobs":{"*":{"source":"uipath","url":"https://cloud.uipath.com/o/t/orchestrator_"}}`), false},
		{set(`,"jobs":{"*":{"source":"uipath","url":"https://x","token":"${T}","status":{"url":"https://x"}}}`), false},
		{set(`,"jobs":{"P":{"source":"exec"}}`), false},
		{set(`,"jobs":{"P":{"source":"ftp"}}`), false},
		{set(`,"evaluators":[{"id":"e","type":"command","command":["./score"]},{"id":"x","evaluatorTypeId":"uipath-exact-match","evaluatorConfig":{}}]`), true},
		{set(`,"evaluators":[{"id":"e","evaluatorSchema":"file://x.py:X"}]`), true},
		{set(`,"evaluators":[{"id":"e"}]`), false},
		{`{"name":"b"}`, false},
		{strings.Replace(set(``), `"1.0"`, `1.0`, 1), false},
	} {
		if err := Validate("evalset", []byte(c.doc)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.doc, err)
		}
	}
}

func TestAgent(t *testing.T) {
	for _, c := range []struct {
		doc string
		ok  bool
	}{
		{`"claude"`, true},
		{`"clod"`, false},
		{`{"type":"oracle","name":"solution"}`, true},
		{`{"type":"nop","command":["true"]}`, false},
		{`{"type":"langgraph","url":"http://x"}`, false},
		{`{"type":"langgraph"}`, true},
		{`{"type":"python","entrypoint":"src/agent.py:main","python":".venv/bin/python","keep":false}`, true},
		{`{"type":"python","entrypoint":"src/agent.py"}`, false},
		{`{"type":"uipath","entrypoint":"main","cwd":".."}`, true},
		{`{"type":"node","entrypoint":"src/agent.ts:main","node":"node_modules/.bin/node"}`, true},
		{`{"type":"node","entrypoint":"agent"}`, true},
		{`{"type":"node","entrypoint":"src/agent.py:main"}`, false},
		{`{"type":"node"}`, false},
		{`{"type":"function","command":["python3","a.py"],"permissions":"allow"}`, false},
		{`{"type":"acp"}`, false},
		{`{"type":"acp","extends":"codex"}`, true},
		{`{"type":"acp","extends":"oracle"}`, false},
		{`{"type":"acp","name":"a","command":["agent","--acp"],"cwd":".","env":{"KEY":"{modelKey}"},"files":{".config/a.json":"{}"},
			"model":{"api":"openai","url":"https://x","key":"${K}","name":"m"},"permissions":"suspend","elicitation":"suspend","mode":"code",
			"configOptions":{"model":"large"},"authMethod":"api-key","resumeBy":["load","replay"],"toolName":"{server}.{tool}","fs":true,"terminal":true,
			"idleTimeout":"5m","visible":["/opt/data"],"resumeWhen":"all","acceptsFaults":true,"timeout":"1h"}`, true},
		{`{"type":"acp","command":["a"],"permissions":"ask"}`, false},
		{`{"type":"acp","command":["a"],"elicitation":"allow"}`, false},
		{`{"type":"acp","command":["a"],"model":{"key":"k"}}`, false},
		{`{"type":"acp","command":["a"],"resumeBy":["fork"]}`, false},
		{`{"type":"acp","command":["a"],"stdin":"input"}`, false},
	} {
		if err := Validate("agent", []byte(c.doc)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.doc, err)
		}
	}
}

func TestEvent(t *testing.T) {
	line := func(typ, more string) string {
		return `{"seq":1,"time":"2026-01-02T03:04:05.6Z","type":"` + typ + `","runId":"r",` + more + `}`
	}
	for _, c := range []struct {
		doc string
		ok  bool
	}{
		{line("rollout.finished", `"rolloutId":"o","data":{"state":"completed","score":1}`), true},
		{line("rollout.finished", `"rolloutId":"o","data":{"state":"faulted","score":null,"fault":{"category":"exit","message":"m"}}`), true},
		{line("rollout.finished", `"rolloutId":"o","data":{"state":"cancelled","score":null,"evaluationId":"e","evaluationName":"E","agent":"a","epoch":1}`), true},
		{line("rollout.finished", `"data":{"state":"completed","score":1}`), false},
		{line("rollout.finished", `"rolloutId":"o","data":{"state":"suspended","score":1}`), false},
		{line("rollout.finished", `"rolloutId":"o","data":{"state":"completed","score":1,"more":1}`), false},
		{line("run.finished", `"data":{"completed":2}`), true},
		{line("run.finished", `"data":{"completed":2},"more":1`), false},
		{line("rollout.paused", `"rolloutId":"o","data":{}`), false},
	} {
		if err := Validate("event", []byte(c.doc)); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.doc, err)
		}
	}
}

func TestSpan(t *testing.T) {
	if err := Validate("span", []byte(`{"name":"t","attributes":{"tool.name":"add","input.value":"{}"},"kind":1}`)); err != nil {
		t.Error(err)
	}
	if err := Validate("span", []byte(`{"name":1}`)); err == nil {
		t.Error("a name that is a number was accepted")
	}
}
